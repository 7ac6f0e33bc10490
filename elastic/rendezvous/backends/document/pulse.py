"""Which leases have ended, as one observer sees it: those whose counters have stood still for their time.

Pure, and without a clock of its own: the observer says when it looked, by its own monotonic clock. What an
observer has not watched it does not judge: after a gap between two looks, every lease has its whole time
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_LONGEST_PAUSE = 2.0  # seconds before a node tries again what has failed, however long a lease lasts


@dataclass(frozen=True, slots=True)
class Pulse:
    """A counter, and since when it has been seen with that value."""

    beats: int
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulses:
    """What one observer has seen of all leases. Seconds throughout.

    A lease has ended when its counter has stood still for `ttl`. A gap between two looks that is longer than
    `longest_gap` says that the observer itself was held up.
    """

    ttl: float
    longest_gap: float
    seen: Mapping[str, Pulse] = field(default_factory=dict)
    looked: float | None = None

    def after(self, leases: Mapping[str, int], now: float) -> Pulses:
        """With a look at all counters, now."""
        fresh = self.looked is None or now - self.looked > self.longest_gap
        seen = {}
        for lease, beats in leases.items():
            known = None if fresh else self.seen.get(lease)
            seen[lease] = known if known is not None and known.beats == beats else Pulse(beats, now)
        return Pulses(ttl=self.ttl, longest_gap=self.longest_gap, seen=seen, looked=now)

    def stale(self, now: float, *, own: str, delay: float) -> dict[str, int]:
        """The leases but one's own that have ended, `delay` seconds ago at least, with their counters."""
        return {
            lease: pulse.beats
            for lease, pulse in self.seen.items()
            if lease != own and now >= pulse.since + self.ttl + delay
        }

    def due(self, *, own: str, delay: float) -> float | None:
        """When the next of these will have, if nothing is heard of it."""
        since = [pulse.since for lease, pulse in self.seen.items() if lease != own]
        return min(since) + self.ttl + delay if since else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a node idles between two looks, and pauses before it tries again, in seconds, at most.

    A `gap` between two looks that is longer says that the observer, and perhaps everybody, was held up.
    """

    gap: float
    idle: float
    pause: float


def patience_of(*, ttl: float, interval: float) -> Patience:
    """What keeps a lease alive over an outage that no observer takes for one.

    Since its owner's last heartbeat an interval goes by, then such an outage, then the pause until the owner
    tries again: less than `ttl` together, with something to spare for slow calls and clocks. `interval`, the
    time between two heartbeats, is half of `ttl` at most.
    """
    spare = ttl - interval
    return Patience(gap=spare / 2, idle=spare / 4, pause=min(_LONGEST_PAUSE, spare / 4))


def delay_of(own: str, leases: Mapping[str, int], *, leads: bool, step: float) -> float:
    """How much later than others this observer acts on a lease that has ended, so that one usually does.

    The leader does at once; the others, in the order of their leases, one `step` and more later.
    """
    if leads:
        return 0.0
    place = sorted(leases).index(own) if own in leases else len(leases)
    return step * (1 + min(place, 4) / 4)
