"""The rendezvous for tensorplay's own launcher::

    from elastic.interop.tensorplay import register
    from tensorplay.distributed.launcher import LaunchConfig, elastic_launch

    register()
    config = LaunchConfig(1, 3, rdzv_backend="elastic-etcd", rdzv_endpoint="HOST:2379", run_id="job")
    elastic_launch(config, "python")("train.py")

tensorplay 1.0.0 loads no plug-ins by itself, which is why `register` must be called in the process that
launches. The launcher's decisions stay its own; this adapts what it knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tensorplay.distributed import Store, StoreTimeoutError
from tensorplay.distributed.elastic.rendezvous import api as tensorplay_api

from elastic import store as elastic_store

from .errors import raised_as
from .exit_barrier import ExitBarrier
from .parameters import NAMES, translate
from .participant import Participant
from .round_store import RoundStore

EXIT_BARRIER = "tp_elastic/agent/terminal_state"
"""How the keys begin by which tensorplay's agents wait for each other once their workers have succeeded."""

_INJECTED = frozenset({"min_nodes", "max_nodes", "rank"})
"""What its launcher adds to the settings by itself: their values are parameters already."""

_DEFAULT_LIMIT = 300.0


def register() -> None:
    """Make `NAMES` rendezvous backends of tensorplay in this process. May be called again."""
    for name in NAMES:
        tensorplay_api.get_registry().register(name, create)


def create(params: tensorplay_api.RendezvousParameters) -> TensorplayRendezvous:
    """A handler for tensorplay's agent.

    ValueError for wrong settings, and its RendezvousConnectionError where the store cannot be used.
    """
    ours = translate(params, injected=_INJECTED)
    with raised_as(tensorplay_api):
        participant = Participant.create(ours)
    participant.handler.announce(role="default_role", local_world_size=params.local_world_size)
    return TensorplayRendezvous(participant, name=params.backend)


class TensorplayRendezvous(tensorplay_api.RendezvousHandler):  # type: ignore[misc]
    """Our rendezvous behind tensorplay's interface. Its agent calls `shutdown` however it ends."""

    def __init__(self, participant: Participant, *, name: str) -> None:
        """Owns the participant. `name` is the one that tensorplay was asked for."""
        self._participant = participant
        self._name = name

    def get_backend(self) -> str:
        return self._name

    @property
    def use_agent_store(self) -> bool:
        """False: workers bootstrap from MASTER_ADDR and MASTER_PORT, which rank 0 of the round listens on."""
        return False

    def next_rendezvous(self) -> tensorplay_api.RendezvousInfo:
        """Block until this node is in a new world; raises tensorplay's errors."""
        with raised_as(tensorplay_api):
            joined = self._participant.join()
        info = joined.info
        return tensorplay_api.RendezvousInfo(
            AgentStore(joined.store, self._participant),
            info.rank,
            info.world_size,
            tensorplay_api.RendezvousStoreInfo(
                info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port
            ),
            list(info.participants),
        )

    def num_nodes_waiting(self) -> int:
        """How many nodes wait; at least 1 where the world is over, so that the agent starts anew."""
        return self._participant.nodes_waiting()

    def is_closed(self) -> bool:
        with raised_as(tensorplay_api):
            return self._participant.handler.is_closed()

    def set_closed(self) -> None:
        with raised_as(tensorplay_api):
            self._participant.handler.set_closed()

    def get_run_id(self) -> str:
        return self._participant.handler.get_run_id()

    def shutdown(self) -> bool:
        """Leave, without ending the job for the others: whether workers failed, its agent does not say."""
        return self._participant.leave()


class AgentStore(Store):  # type: ignore[misc]
    """The keys of one round, in the shape of tensorplay's `Store`. Limits are seconds (default: 300).

    StoreTimeoutError where a key is not there in time, and RuntimeError for all else that goes wrong.
    """

    def __init__(self, store: RoundStore, participant: Participant) -> None:
        self._store = store
        self._barrier = ExitBarrier(EXIT_BARRIER, participant)
        self.timeout = _DEFAULT_LIMIT

    def set(self, key: str, value: str | bytes) -> None:
        with _store_translated():
            self._store.set(key, value, self.timeout)

    def get(self, key: str, timeout: float | None = None) -> bytes:
        with _store_translated():
            return self._store.get(key, self._limit(timeout))

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> bool:
        """Return True once all keys are there. For those of the exit barrier: once all have succeeded."""
        limit = self._limit(timeout)
        with _store_translated():
            if not self._barrier.wait(keys, limit):
                self._store.wait(keys, limit)
        return True

    def has(self, key: str) -> bool:
        with _store_translated():
            return self._store.check([key], self.timeout)

    def add(self, key: str, amount: int) -> int:
        """Add to the counter at a key; its new value, or 0 for the exit barrier, which is not kept."""
        if self._barrier.arrive(key):
            return 0
        with _store_translated():
            return self._store.add(key, amount)

    def compare_set(self, key: str, expected: str | bytes, value: str | bytes) -> bytes:
        with _store_translated():
            return self._store.compare_set(key, expected, value)

    def compare_and_swap(self, key: str, expected: bytes, value: bytes) -> tuple[bool, bytes]:
        """Whether the value was `expected` and is `value` now, and what is there."""
        found = self.compare_set(key, expected, value)
        return found == value, found

    def delete_key(self, key: str) -> None:
        with _store_translated():
            self._store.delete_key(key)

    def _limit(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else float(timeout)


@contextmanager
def _store_translated() -> Iterator[None]:
    try:
        yield
    except elastic_store.StoreTimeoutError as e:
        raise StoreTimeoutError(str(e)) from e
    except elastic_store.StoreError as e:
        raise RuntimeError(str(e)) from e
