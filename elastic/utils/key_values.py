"""``key=value,key=value`` as commands take it.

Pure; bad text is a ValueError whose sentence goes after the name of the flag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType


def key_values(text: str) -> Mapping[str, str]:
    """``key=value,key=value``; a key that comes twice must have the same value."""
    pairs: list[Mapping[str, str]] = []
    for part in text.split(","):
        if not part.strip():
            continue
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key:
            raise ValueError(f"{part.strip()!r} is not KEY=VALUE; write KEY=VALUE[,KEY=VALUE]")
        pairs.append({key: value})
    return merged(pairs)


def merged(parts: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    """The union of what was given piece by piece; two values for one key are an error."""
    union: dict[str, str] = {}
    for part in parts:
        for key, value in part.items():
            if union.setdefault(key, value) != value:
                raise ValueError(f"{key!r} is given twice with different values; keep one")
    return MappingProxyType(union)
