"""What operators use: the command ``elasticctl``."""
