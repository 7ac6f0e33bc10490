"""What one node knows, for threads other than the rendezvous loop to read and to wait for.

The loop alone publishes; anybody may read, wait and subscribe. Nothing is decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .core.member import Standing, Verdict
from .core.records import Round, Terminal
from .core.view import View
from .errors import RendezvousError


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the shell knows, for other threads to read.

    `joins` counts the wishes to join that have been taken in, and `world` is what the last of them
    was given; `error` ends every wait; `refusal` is why this node may not join at all. `gone` says that
    the loop is over, or about to be, and `heard` that the goodbye before that was.
    """

    ready: bool = False
    connected: bool = True
    verdict: Verdict = field(default_factory=lambda: Verdict(Standing.CURRENT))
    view: View = field(default_factory=View)
    joins: int = 0
    world: Round | None = None
    nodes_waiting: int = 0
    nodes_leaving: int = 0
    refusal: Terminal | str | None = None
    error: RendezvousError | None = None
    gone: bool = False
    heard: bool = False


class Board:
    """The present situation, and those who wait for it to change."""

    def __init__(self) -> None:
        self.situation = Situation()
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Have it called, by the thread that publishes, after each change."""
        self._listeners.append(listener)

    def publish(self, situation: Situation) -> None:
        """Tell everybody, if this is news."""
        if situation == self.situation:
            return
        self._set(situation)
        for listener in self._listeners:
            listener()

    def end(self) -> None:
        """Nothing is published any more: wake whoever still waits."""
        self._set(replace(self.situation, gone=True))

    def wait_for(self, condition: Callable[[Situation], bool], timeout: float) -> bool:
        """Block until the condition holds or an error ends it; False where `timeout` seconds are up."""
        return self._wait(lambda: self.situation.error is not None or condition(self.situation), timeout)

    def wait_gone(self, timeout: float) -> bool:
        """Block until the node has left, also after an error; whether its goodbye was heard in time."""
        return self._wait(lambda: self.situation.gone, timeout) and self.situation.heard

    def _wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def _set(self, situation: Situation) -> None:
        with self._changed:
            self.situation = situation
            self._changed.notify_all()
