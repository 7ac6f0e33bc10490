"""Whether the backend answers: since when it is away, what that means by now, and when to try again.

Keeps the record and says each change once, in the log and to its owner. Makes no call and no wait
itself. Belongs to the rendezvous loop, and is used by its thread alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from .core.changes import BackendAway, BackendBack, Observer

log = logging.getLogger("elastic.rendezvous")

FIRST_PAUSE = 0.1
"""Seconds before the second try of what failed; each further pause is twice as long."""
LONGEST_PAUSE = 2.0

_SHORTEST_OUTAGE = 1.0  # seconds; a stream that is replaced at once, or late, is none


class Contact:
    """The ways to the backend ("call", "watch", "lease") and which of them are interrupted.

    `outage` says that the backend counts as away, and `lost`, if not empty, why this node gives up.
    """

    def __init__(
        self,
        *,
        place: str,
        failsafe: float | None,
        clock: Callable[[], float],
        changed: Callable[[], None],
        back: Callable[[float], None],
        tell: Observer,
    ) -> None:
        """`place`: what the backend is called. `failsafe`: seconds until this node gives up; None: never.

        `changed` is called with each change of `outage` or `lost`, and `back`, before that, with the time at
        which an outage ends. `tell` is told of the beginning and the end of an outage.
        """
        self.outage = False
        self.lost = ""
        self._place = place
        self._failsafe = failsafe
        self._clock = clock
        self._changed = changed
        self._back = back
        self._tell = tell
        self._away: dict[str, str] = {}
        self._since = 0.0
        self._pause = FIRST_PAUSE

    @property
    def broken(self) -> bool:
        """Whether any of the ways is interrupted."""
        return bool(self._away)

    @property
    def patience_ends(self) -> float | None:
        """When the silence of the backend means something more than it does now."""
        if not self._away or self.lost:
            return None
        if not self.outage:
            return self._since + _SHORTEST_OUTAGE
        return None if self._failsafe is None else self._since + self._failsafe

    def mind_silence(self) -> None:
        """Say once that the backend is away; later, if there is a limit, give up."""
        now = self._clock()
        if not self._away or self.lost:
            return
        if not self.outage and now >= self._since + _SHORTEST_OUTAGE:
            self.outage = True
            reason = next(iter(self._away.values()))
            log.warning(
                "%s is away (%s); nothing is decided until it is back, and workers run on%s",
                self._place,
                reason,
                "" if self._failsafe is None else f", for {self._failsafe:g} s (failsafe_timeout)",
            )
            self._tell(BackendAway(reason))
            self._changed()
        if self._failsafe is not None and now >= self._since + self._failsafe:
            self.lost = f"{self._place} has been away for {self._failsafe:g} s (failsafe_timeout)"
            log.error("%s: this node gives up", self.lost)
            self._changed()

    def lose(self, what: str, reason: str) -> None:
        """One way is interrupted."""
        if not self._away:
            self._since = self._clock()
        self._away[what] = reason
        self.mind_silence()

    def regain(self, what: str) -> None:
        """One way works. Where it is the last one that did not, the backend is back."""
        self._pause = FIRST_PAUSE
        self.mind_silence()
        if self._away.pop(what, None) is None or self._away:
            return
        if self.outage:
            # Only then: streams that break again and again would otherwise excuse an absent node for ever.
            now = self._clock()
            self._back(now)
            self.outage = False
            log.warning("%s is back after %.1f s", self._place, now - self._since)
            self._tell(BackendBack(now - self._since))
            self._changed()

    def next_pause(self) -> float:
        """Seconds until the next try, longer each time until the backend answers."""
        pause = self._pause
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return pause
