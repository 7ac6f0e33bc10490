"""Which streams of which worker go where: the values, and how they are written on a command line.

Pure. It opens no file; :mod:`elastic.multiprocessing.logs` turns these values into paths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag
from typing import TypeAlias

_FORMS = "write one digit (0 none, 1 stdout, 2 stderr, 3 both) or local_rank:digit,local_rank:digit"


class Std(IntFlag):
    """Standard streams of a worker: none, stdout, stderr, or both."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, text: str) -> "Std | dict[int, Std]":
        """Parse ``3`` (every worker) or ``0:3,12:1`` (by local rank; the others get none).

        Raises:
            ValueError: The text has neither form, or names a local rank twice.
        """
        if ":" not in text:
            return cls._from_digit(text, text)
        modes: dict[int, Std] = {}
        for item in text.split(","):
            rank, colon, digit = item.strip().partition(":")
            if not colon or not (rank.isascii() and rank.isdecimal()):
                raise ValueError(f"{text!r} names no streams because of {item!r}: {_FORMS}")
            if int(rank) in modes:
                raise ValueError(f"{text!r} names local rank {int(rank)} twice: keep one of the two")
            modes[int(rank)] = cls._from_digit(digit, text)
        return modes

    @classmethod
    def _from_digit(cls, digit: str, text: str) -> "Std":
        if digit not in {"0", "1", "2", "3"}:
            raise ValueError(f"{text!r} names no streams because of {digit!r}: {_FORMS}")
        return cls(int(digit))


def to_map(val_or_map: "Streams", local_world_size: int) -> dict[int, Std]:
    """Expand one value, or a map with holes, to one value for each local rank.

    A local rank that the map lacks gets :attr:`Std.NONE`.

    Raises:
        TypeError: It is neither of them, nor a :class:`Redirects`.
    """
    if isinstance(val_or_map, Redirects):
        return val_or_map.streams(local_world_size)
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    if not isinstance(val_or_map, Mapping):
        raise TypeError(
            f"{val_or_map!r} names no streams: give a Std, such as Std.ALL, or one for each local rank"
        )
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


@dataclass(frozen=True, slots=True)
class Redirects:
    """What goes to files, and what goes to files and the console.

    Args:
        stdouts: Streams that go to files only; one value, or one for each local rank.
        stderrs: Kept apart from ``stdouts`` because the documented API names both; the two are united
            by :meth:`streams`.
    """

    stdouts: "Std | dict[int, Std]" = Std.NONE
    stderrs: "Std | dict[int, Std]" = Std.NONE

    @classmethod
    def from_default(cls, std: Std) -> "Redirects":
        """The same streams for every worker."""
        return cls(stdouts=std & Std.OUT, stderrs=std & Std.ERR)

    @classmethod
    def from_str(cls, text: str) -> "Redirects":
        """Parse the forms of :meth:`Std.from_str`."""
        streams = Std.from_str(text)
        if isinstance(streams, Std):
            return cls.from_default(streams)
        return cls(
            stdouts={rank: std & Std.OUT for rank, std in streams.items()},
            stderrs={rank: std & Std.ERR for rank, std in streams.items()},
        )

    def streams(self, local_world_size: int) -> dict[int, Std]:
        """Return the streams of each local rank."""
        outs = to_map(self.stdouts, local_world_size)
        errs = to_map(self.stderrs, local_world_size)
        return {rank: (outs[rank] & Std.OUT) | (errs[rank] & Std.ERR) for rank in outs}


Streams: TypeAlias = Std | Mapping[int, Std] | Redirects
"""Streams of workers: the same of all of them, or those of each local rank."""
