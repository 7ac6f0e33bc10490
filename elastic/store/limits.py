"""How much a TCPStoreServer takes from its clients. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

_MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What goes beyond is refused in words, or the connection is cut where words would not help.

    `key`, `value` and `frame` are the bytes of one key, value and message; `keys` is the number of keys and
    `total` the bytes of all keys and values. `connections` counts those that have proved who they are, and
    `strangers` those that have not yet: where one more comes, the one that has tried longest goes.
    `handshake` is the seconds for the proof, and `stall` those for the rest of a message that has begun, in
    both directions. `replays` and `replay_bytes` bound the answers kept for clients that may ask again.
    """

    LARGEST_FRAME: ClassVar[int] = 1 << 30

    key: int = 4096
    value: int = 8 * _MEBI
    frame: int = 16 * _MEBI
    keys: int = 1_000_000
    total: int = 512 * _MEBI
    connections: int = 20_000
    strangers: int = 256
    handshake: float = 10.0
    stall: float = 30.0
    replays: int = 65_536
    replay_bytes: int = 64 * _MEBI

    def __post_init__(self) -> None:
        if not 1024 <= self.frame <= self.LARGEST_FRAME:
            raise ValueError(f"frame is {self.frame}: expected 1024 to {self.LARGEST_FRAME} bytes")
