"""The agent interface, and the agent that every other one extends.

`SimpleElasticAgent` runs the one loop of :mod:`.loop`; a subclass provides the workers, by the hooks of
:mod:`.hooks`.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable

from .hooks import WorkerHooks
from .instruments import Instrument, Instruments
from .loop import AgentSettings, Loop
from .restarts import RestartPolicy
from .spec import RunResult, WorkerGroup, WorkerSpec
from .waiting import Doorbell, Orders, Signals

DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
DEFAULT_NEWS = (signal.SIGUSR1, signal.SIGUSR2)


class ElasticAgent(ABC):
    """An agent of one worker group."""

    @abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Run the workers to the end of the job."""

    @abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The worker group; do not change it."""

    @abstractmethod
    def stop(self) -> None:
        """Have `run` end soon, from any thread."""


class SimpleElasticAgent(ElasticAgent, WorkerHooks):
    """An agent with a loop, and without workers of its own. Durations are seconds.

    `exit_barrier_timeout` is how long an agent whose workers have succeeded waits for the other
    nodes; the wait ends at once when they are done or gone. `shutdown_timeout` is how long workers may
    take to end after they are told to. `signals_to_handle` are the signals that make this node leave;
    `signals_to_pass_on` are news for its workers, and change nothing here. `notice_timeout` is how long
    workers may take to acknowledge that they will be stopped for a newcomer, or because a node leaves (0:
    they are not told), and `notice_signal` is sent to them with the notice (0: none). `restarts` says how
    soon they are started again after a failure. `instruments` are told what happens, and closed at the end of
    `run`. ValueError for a negative duration.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        exit_barrier_timeout: float = 300,
        shutdown_timeout: float = 30,
        *,
        signals_to_handle: Iterable[int] = DEFAULT_SIGNALS,
        signals_to_pass_on: Iterable[int] = DEFAULT_NEWS,
        notice_timeout: float = 0,
        notice_signal: int = 0,
        restarts: RestartPolicy | None = None,
        instruments: Iterable[Instrument] = (),
    ) -> None:
        self._worker_group = WorkerGroup(spec)
        self._settings = AgentSettings(
            exit_barrier_timeout=exit_barrier_timeout,
            shutdown_timeout=shutdown_timeout,
            notice_timeout=notice_timeout,
            notice_signal=notice_signal,
            restarts=restarts or RestartPolicy(),
        )
        self._signals_to_handle = tuple(signals_to_handle)
        self._signals_to_pass_on = tuple(signals_to_pass_on)
        self._instruments = Instruments(tuple(instruments))
        self._bell = Doorbell()
        self._orders = Orders(self._bell)

    def get_worker_group(self, role: str = "default") -> WorkerGroup:  # noqa: ARG002 - it has one
        return self._worker_group

    def stop(self) -> None:
        """Have this node leave as if it got a signal: the one call that another thread may make.

        It returns at once, and `run` returns a result in state STOPPED when the workers have ended. Called
        again it kills them. Before `run` it makes that end at once, and afterwards it does nothing.
        """
        self._orders.stop()

    def ring(self) -> None:
        """Have the loop make a turn soon, from any thread: for an instrument with something to show it."""
        self._orders.ring()

    def run(self, role: str = "default") -> RunResult:  # noqa: ARG002 - it has one
        """Run to the end of the job, or of this node's part in it.

        Returns how the workers ended. Not in the main thread it handles no signals: end it by `stop`. Raises
        SignalException when a signal made this node leave, and a
        RendezvousError when there is no world for it. Afterwards no worker runs and the rendezvous is
        left. An agent runs once.
        """
        loop = Loop(
            self,
            self._worker_group,
            settings=self._settings,
            bell=self._bell,
            orders=self._orders,
            instruments=self._instruments,
        )
        passing = self._signals_to_pass_on
        with Signals(self._signals_to_handle, self._bell, passing=passing) as self._orders.signals:
            return loop.run()
