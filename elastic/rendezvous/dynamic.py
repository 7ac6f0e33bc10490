"""The dynamic rendezvous: membership that changes while the job runs.

`DynamicRendezvousHandler` is the documented front of it. It holds no state of its own: the protocol
(:mod:`.core`) decides, the shell (:mod:`.shell`) carries that out over a backend in a thread of its
own, and the handler turns calls into wishes and what the shell finds into results and errors.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from elastic.utils.network import ReservedPort

from .api import RendezvousHandler, RendezvousInfo, RendezvousStatus, RendezvousStoreInfo
from .backends.api import BackendRefused, BackendUnavailable, BackendWiped, MembershipBackend
from .backends.document.state import RendezvousBackend
from .core.changes import Change, Observer
from .core.member import Standing
from .core.protocol import Protocol
from .core.records import Failure, Node, Outcome, Round, Terminal, Want
from .core.report import Report, report
from .core.view import View, store_prefix
from .errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousExhaustedError,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from .naming import node_id_of
from .settings import RendezvousSettings, RendezvousTimeout
from .shell import Shell
from .situation import Situation

log = logging.getLogger("elastic.rendezvous")

_LONGEST_SILENCE = 60.0


class DynamicRendezvousHandler(RendezvousHandler):
    """A node's access to a rendezvous whose world may change.

    `backend` makes this node's backend from the node's id, and `address` is where the other nodes
    reach this one. The handler owns the backend. Nothing is written before the first
    `next_rendezvous`. After use, call `shutdown`.
    """

    def __init__(
        self,
        settings: RendezvousSettings,
        backend: Callable[[str], MembershipBackend],
        *,
        address: str,
        role: str = "default_role",
        local_world_size: int = 1,
    ) -> None:
        hostname = socket.gethostname()
        node_id = node_id_of(settings.node_name or f"{hostname}-{os.getpid()}", life=uuid.uuid4().int)
        self._settings = settings
        self._backend = backend(node_id)
        self._address = address
        self._node = Node(
            node_id=node_id,
            want=Want.JOINING,
            round=0,
            # A node without a name of its own has no successor, so its name must be unique.
            name=settings.node_name or node_id,
            address=address,
            hostname=hostname,
            pid=os.getpid(),
            local_world_size=local_world_size,
            role=role,
            master_port=0,
        )
        self._lock = threading.Lock()
        self._shell: Shell | None = None
        self._listeners: list[Callable[[], None]] = []
        self._observers: list[Observer] = []
        self._port: ReservedPort | None = None
        self._leaving = False

    @staticmethod
    def from_backend(
        run_id: str,
        store: Any,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        timeout: RendezvousTimeout | None = None,
        keep_alive_interval: timedelta | float = 5,
        keep_alive_max_attempt: int = 3,
    ) -> DynamicRendezvousHandler:
        """A handler over a state that the caller brings, such as a `P10dRendezvousBackend`.

        `store` is where the agents exchange values: one of :mod:`elastic.store`, of torch or of tensorplay.
        The caller closes both, after `shutdown`. A node that has been silent for `keep_alive_max_attempt`
        times `keep_alive_interval` (seconds, or a timedelta) counts as dead. Raises ValueError for settings
        that cannot be, and TypeError for what is no store.
        """
        interval = keep_alive_interval
        custom = importlib.import_module("elastic.rendezvous.backends.custom")  # which loads protobuf
        handler: DynamicRendezvousHandler = custom.over_backend(
            run_id,
            store,
            backend,
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            local_addr=local_addr,
            timeout=timeout,
            keep_alive_interval=interval if isinstance(interval, timedelta) else timedelta(seconds=interval),
            keep_alive_max_attempt=keep_alive_max_attempt,
        )
        return handler

    # -- the common interface ---------------------------------------------------------------------

    def get_backend(self) -> str:
        return self._backend.name

    def get_run_id(self) -> str:
        return self._settings.run_id

    @property
    def settings(self) -> RendezvousSettings:
        """The settings that it was made with."""
        return self._settings

    @property
    def node_id(self) -> str:
        """The id of this node, unique in the life of the run."""
        return self._node.node_id

    @property
    def view(self) -> View:
        """What this node knows of the shared records: all on the leader, elsewhere what it follows."""
        return View() if self._shell is None else self._shell.situation.view

    @property
    def shares_failures(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Block until this node is in a new world, for at most the join timeout.

        Raises RendezvousClosedError when the job has ended, RendezvousGracefulExitError for a node
        that waited when it succeeded or that is told to leave, RendezvousExhaustedError or
        RendezvousTimeoutError (both with a report) when there is no world in time,
        RendezvousConnectionError when the backend cannot be reached at all, and RendezvousStateError
        when a record is unreadable or this node may not take part.
        """
        shell = self._started()
        number = shell.join(master_port=self._reserve_port())
        limit = self._settings.timeout.join.total_seconds()
        answers: list[Situation] = []

        def answered(situation: Situation) -> bool:
            arrived = situation.joins == number and situation.world is not None
            if arrived or self._obstacle(situation) is not None:
                answers.append(situation)
            return bool(answers)

        self._await(shell, answered, limit)
        situation = answers[0] if answers else shell.situation
        if situation.joins == number and situation.world is not None:
            return self._info(situation.world, situation.view)
        raise self._obstacle(situation) or self._too_late(shell, limit)

    def is_closed(self) -> bool:
        """Whether the job has ended. The first call of a new handler waits for the backend's answer."""
        shell = self._started()
        if not shell.wait_for(lambda s: s.ready, self._settings.connect_timeout.total_seconds()):
            raise RendezvousConnectionError("the rendezvous backend does not answer")
        return _closed(shell.situation) is not None

    def set_closed(self) -> None:
        """End the job for all nodes; RendezvousTimeoutError where that is not confirmed in time."""
        shell = self._started()
        shell.post(lambda protocol: protocol.close("closed by a caller"))
        limit = self._settings.timeout.close.total_seconds()
        if not shell.wait_for(lambda s: _closed(s) is not None, limit):
            raise RendezvousTimeoutError(f"closing the rendezvous was not confirmed within {limit:g} s")
        if shell.situation.error is not None:
            raise shell.situation.error

    def num_nodes_waiting(self) -> int:
        """How many nodes wait to be let in, as the leader last announced it. Never blocks."""
        return 0 if self._shell is None else self._shell.situation.nodes_waiting

    def shutdown(self) -> bool:
        """Leave without closing; returns whether the goodbye was heard. May be called again."""
        self.leave("shut down")
        self._release_port()
        shell = self._shell
        if shell is None:
            self._backend.close()
            return True
        heard = shell.wait_gone(self._settings.timeout.close.total_seconds())
        # A backend that others depend on goes after them, within close_timeout.
        limit = self._settings.timeout.close.total_seconds()
        shell.stop(self._settings.read_timeout.total_seconds() + limit + 1)
        return heard

    # -- for event-driven agents ------------------------------------------------------------------

    def announce(self, *, role: str, local_world_size: int, labels: Mapping[str, str] | None = None) -> None:
        with self._lock:
            if self._shell is not None:
                raise RuntimeError("announce() comes before the first next_rendezvous()")
            self._node = replace(
                self._node, role=role, local_world_size=local_world_size, labels=dict(labels or {})
            )

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)
        self._backend.observe(self._tell)

    def subscribe(self, listener: Callable[[], None]) -> bool:
        self._listeners.append(listener)
        return True

    def status(self) -> RendezvousStatus:
        if self._shell is None:
            return RendezvousStatus()
        situation = self._shell.situation
        verdict, control = situation.verdict, situation.view.control
        if situation.error is not None and verdict.standing is Standing.CURRENT:
            return RendezvousStatus(standing=Standing.EVICTED, reason=str(situation.error))
        return RendezvousStatus(
            standing=verdict.standing,
            reason=verdict.why,
            terminal=verdict.terminal,
            nodes_waiting=situation.nodes_waiting,
            nodes_leaving=situation.nodes_leaving,
            find_stragglers=None if control is None else control.record.find_stragglers,
            spares=sum(s.record.want is Want.SPARE for s in situation.view.nodes.values()),
            connected=situation.connected,
        )

    def workers_started(self) -> None:
        self._release_port()

    def regroup(self, cause: str, failure: Failure | None = None) -> None:
        if self._shell is not None:
            self._shell.post(lambda protocol: protocol.regroup(cause, failure))

    def drain(self, cause: str) -> None:
        if self._shell is not None:
            self._shell.post(lambda protocol: protocol.drain(cause))

    def leave(self, cause: str) -> None:
        with self._lock:
            self._leaving = True
            shell = self._shell
        if shell is not None:
            shell.post(lambda protocol: protocol.leave(cause))

    def report_success(self) -> bool:
        if self._shell is not None:
            self._shell.post(lambda protocol: protocol.succeed())
        return True

    # -- inside -----------------------------------------------------------------------------------

    def _started(self) -> Shell:
        with self._lock:
            self._refuse_if_leaving()
            if self._shell is None:
                limit = self._settings.failsafe_timeout
                self._shell = Shell(
                    Protocol(self._node, replace(self._settings.rules, place=self._backend.place)),
                    self._backend,
                    failsafe=None if limit is None else limit.total_seconds(),
                    tell=self._tell,
                )
                self._shell.subscribe(self._notify)
                self._shell.start()
            return self._shell

    def _tell(self, change: Change) -> None:
        for observer in self._observers:
            observer(change)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _refuse_if_leaving(self) -> None:
        if self._leaving:
            raise RendezvousGracefulExitError("this rendezvous handler has been shut down")

    def _reserve_port(self) -> int:
        """A port for the next world's master, which stays reserved until its workers run."""
        self._release_port()
        with self._lock:
            self._refuse_if_leaving()
            self._port = ReservedPort(self._address)
            return self._port.port

    def _release_port(self) -> None:
        with self._lock:
            port, self._port = self._port, None
        if port is not None:
            port.release()

    def _info(self, world: Round, view: View) -> RendezvousInfo:
        seen = view.round
        revision = seen.mod_revision if seen is not None and seen.record.round == world.round else None
        rank = world.rank_of(self._node.node_id)
        if rank is None:
            raise AssertionError("the protocol hands out only worlds that this node is in")
        return RendezvousInfo(
            store=self._backend.store(store_prefix(world.round)),
            rank=rank,
            world_size=len(world.world),
            bootstrap_store_info=RendezvousStoreInfo(world.master_addr, world.master_port),
            round=world.round,
            participants=world.world,
            waiting=world.nodes_waiting,
            failures=world.failures,
            cause=world.cause,
            revision=revision,
        )

    def _obstacle(self, situation: Situation) -> Exception | None:
        """Why there is no world for this node, where that is known."""
        if situation.error is not None:
            return situation.error
        refusal = situation.refusal
        if isinstance(refusal, str):
            return RendezvousStateError(refusal)
        if refusal is not None:
            return RendezvousClosedError(f"this job has ended already: {_ending(refusal)}", terminal=refusal)
        terminal = situation.verdict.terminal
        if terminal is not None:
            if terminal.outcome is Outcome.SUCCEEDED:
                return RendezvousGracefulExitError(f"the job has ended: {_ending(terminal)}")
            return RendezvousClosedError(f"the job has ended: {_ending(terminal)}", terminal=terminal)
        if situation.verdict.standing is Standing.LOST:
            return RendezvousConnectionError(situation.verdict.why)
        if situation.verdict.standing is Standing.EVICTED:
            return RendezvousStateError(f"this node may not take part: {situation.verdict.why}")
        if situation.gone or self._leaving:
            return RendezvousGracefulExitError("this node leaves the rendezvous")
        return None

    def _await(self, shell: Shell, condition: Callable[[Situation], bool], limit: float) -> None:
        """Wait for a world, and say from time to time what for."""
        now = time.monotonic()
        deadline = now + limit
        pause = self._settings.progress_interval.total_seconds()
        while now < deadline:
            until = min(deadline, now + pause)
            if shell.wait_for(condition, until - now):
                return
            now = time.monotonic()
            if now < deadline:
                log.info("still waiting for a world: %s", self._survey(shell) or self._silence)
            pause = min(2 * pause, _LONGEST_SILENCE)

    @property
    def _silence(self) -> str:
        return f"{self._backend.place} does not answer"

    def _survey(self, shell: Shell) -> Report | None:
        """Who is there and what is waited for; None where the backend does not answer."""
        try:
            reading = self._backend.survey()
        except (BackendUnavailable, BackendRefused, BackendWiped):
            return None
        view = shell.situation.view.read(reading.revision, self._backend.scope(nodes=True), reading.found)
        return report(view, min_nodes=self._settings.min_nodes, max_nodes=self._settings.max_nodes)

    def _too_late(self, shell: Shell, limit: float) -> Exception:
        """The error for a join that outlived its time, with a report; this node takes itself out first."""
        found = self._survey(shell)
        seen = shell.situation.view.round
        shell.post(lambda protocol: protocol.leave("no world in time"))
        shell.wait_gone(self._settings.timeout.close.total_seconds())
        parts = [
            f"no world within {limit:g} s (join_timeout): {found or self._silence}",
            f"this node: {self._node.name} at {self._address}",
            f"last change: {'none' if seen is None else seen.record.cause}",
        ]
        if found is None:
            return RendezvousConnectionError("; ".join(parts))
        if found.missing:
            return RendezvousExhaustedError("; ".join(parts))
        return RendezvousTimeoutError("; ".join(parts))


def _closed(situation: Situation) -> Terminal | None:
    if situation.verdict.terminal is not None:
        return situation.verdict.terminal
    seen = situation.view.closed
    return None if seen is None else seen.record


def _ending(terminal: Terminal) -> str:
    return f"{terminal.outcome.value.lower()}, {terminal.reason}"
