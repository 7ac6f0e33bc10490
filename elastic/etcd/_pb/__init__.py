"""Generated messages; scripts/protos writes this package."""
