"""Who draws which positions of an epoch's order.

An epoch has one order of all its samples, in which all ranks advance together: of what is left after the
first `consumed` of them, each rank of a world of `replicas` takes every `replicas`-th. When every rank has
drawn `k` more samples, exactly the next `k * replicas` of the order are consumed. So a world may end after
any such step, and a world of any other size go on from that one number: no sample is drawn twice, and none
is left out, but in the tail, where what is left may not divide by the world.
"""

from __future__ import annotations

from typing import Literal

Tail = Literal["pad", "drop", "uneven"]

TAILS: tuple[Tail, ...] = ("pad", "drop", "uneven")


def drawn(remaining: int, *, replicas: int, tail: Tail) -> int:
    """How many samples all ranks draw together when `remaining` are left in the epoch."""
    if tail == "pad":
        return -(-remaining // replicas) * replicas
    return remaining - remaining % replicas if tail == "drop" else remaining


def positions(length: int, *, consumed: int, replicas: int, rank: int, tail: Tail) -> range:
    """Where in the order of `length` samples one rank draws; padding goes on past the end, from the start."""
    end = consumed + drawn(length - consumed, replicas=replicas, tail=tail)
    return range(consumed + rank, end, replicas)
