"""Our rendezvous through torch's interface, without torchrun: worlds, ends, errors, and the agents' store."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from support.etcd import EtcdServer, free_port, wait_until

from elastic.etcd import Client
from elastic.rendezvous import RendezvousParameters, create_handler

pytestmark = pytest.mark.torch
Make = Callable[..., Any]


def together(*handlers: Any) -> list[Any]:
    """The world that these handlers get when they all join at once, as each sees it."""
    return in_parallel(*(handler.next_rendezvous for handler in handlers))


def in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        futures: list[Future[Any]] = [pool.submit(call) for call in calls]
        return [future.result(60) for future in futures]


# -- worlds -------------------------------------------------------------------------------------------


def test_all_nodes_get_the_same_world(torch_handler: Make, run_id: str) -> None:
    handlers = [torch_handler(3, 3) for _ in range(3)]
    infos = together(*handlers)
    assert sorted(info.rank for info in infos) == [0, 1, 2]
    assert {info.world_size for info in infos} == {3}
    masters = [info.bootstrap_store_info for info in infos]
    assert masters.count(masters[0]) == 3
    assert masters[0].master_port > 0
    for handler in handlers:
        assert (handler.get_backend(), handler.get_run_id()) == ("elastic-etcd", run_id)
        assert not handler.use_agent_store
        assert handler.num_nodes_waiting() == 0
        assert not handler.is_closed()


def test_a_store_that_an_agent_hosts_will_do(torch_handler: Make) -> None:
    where = {"backend": "elastic-p10d", "endpoint": f"127.0.0.1:{free_port()}"}
    host, other = torch_handler(1, 2, **where), torch_handler(1, 2, **where)
    assert {info.world_size for info in together(host, other)} == {2}
    assert host.get_backend() == "elastic-p10d"
    other.shutdown()
    wait_until(lambda: host.num_nodes_waiting() > 0)
    assert host.next_rendezvous().world_size == 1


def test_a_newcomer_counts_as_waiting_and_is_let_in(torch_handler: Make) -> None:
    first, second = (torch_handler(1, 2, last_call_timeout="0") for _ in range(2))
    before = first.next_rendezvous()
    with ThreadPoolExecutor(1) as pool:
        newcomer = pool.submit(second.next_rendezvous)
        wait_until(lambda: first.num_nodes_waiting() == 1)
        after = first.next_rendezvous()
        assert newcomer.result(30).world_size == after.world_size == 2
    assert after.bootstrap_store_info.master_port != before.bootstrap_store_info.master_port
    assert first.num_nodes_waiting() == 0


def test_a_lost_member_shows_as_a_node_that_waits(torch_handler: Make) -> None:
    first, second = torch_handler(1, 2), torch_handler(1, 2)
    together(first, second)
    second.shutdown()
    wait_until(lambda: first.num_nodes_waiting() > 0)
    assert first.next_rendezvous().world_size == 1
    assert first.num_nodes_waiting() == 0


def test_who_was_replaced_is_told_so(torch_handler: Make) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousStateError

    older, newer = (torch_handler(1, 1, node_name="node-1") for _ in range(2))
    older.next_rendezvous()
    assert newer.next_rendezvous().world_size == 1
    wait_until(lambda: older.num_nodes_waiting() > 0)
    with pytest.raises(RendezvousStateError, match="a newer agent of its name took its place"):
        older.next_rendezvous()


def test_a_member_that_never_takes_up_its_world_is_not_waited_for(
    torch_handler: Make, etcd: EtcdServer, run_id: str
) -> None:
    first = torch_handler(1, 2)
    conf = {"ttl": 20, "last_call_timeout": 0}
    silent = create_handler(RendezvousParameters("etcd", etcd.endpoint, run_id, 1, 2, None, **conf))
    with ThreadPoolExecutor(1) as pool:
        # In our own protocol it is a member from then on; in torchrun's it has yet to come.
        silent.next_rendezvous()
        joined = pool.submit(first.next_rendezvous)
        wait_until(lambda: silent.num_nodes_waiting() == 1)
        assert silent.next_rendezvous().world_size == 2
        assert not joined.done()
        silent.shutdown()
        assert joined.result(30).world_size == 1


def test_who_is_collected_without_a_goodbye_leaves(
    torch_handler: Make, etcd: EtcdServer, run_id: str
) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters as TorchParameters

    from elastic.interop.torchrun import create

    first = torch_handler(1, 2, ttl="60")
    second = create(TorchParameters("elastic-etcd", etcd.endpoint, run_id, 1, 2, None, ttl="60"))
    together(first, second)
    del second  # what remains of it after a launch that a signal has ended
    gc.collect()
    wait_until(lambda: first.num_nodes_waiting() > 0)  # long before its lease ends


# -- ends ---------------------------------------------------------------------------------------------


def test_success_ends_the_job_and_a_spare_with_code_0(
    torch_handler: Make, client: Client, run_id: str
) -> None:
    first, second, spare = (torch_handler(2, 2) for _ in range(3))
    infos = together(first, second)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(spare.next_rendezvous)
        nodes = f"/elastic/{run_id}/nodes/".encode()
        # Or it would come after the end, and start the job anew.
        wait_until(lambda: b'"SPARE"' in b"".join(kv.value for kv in client.get_prefix(nodes).kvs))
        in_parallel(*(lambda info=info: exit_barrier(info) for info in infos))
        with pytest.raises(SystemExit) as ended:
            waiting.result(30)
    assert ended.value.code == 0
    wait_until(first.is_closed)


def exit_barrier(info: Any) -> None:
    """As torch's agent does it at its end."""
    from torch.distributed.elastic.agent.server import api
    from torch.distributed.elastic.utils.store import barrier

    barrier(info.store, info.world_size, api._TERMINAL_STATE_SYNC_ID, 60)


def test_the_exit_barrier_ends_when_a_peer_will_not_come(torch_handler: Make) -> None:
    from torch.distributed import DistStoreError

    first, second = torch_handler(1, 2), torch_handler(1, 2)
    info, _ = together(first, second)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(exit_barrier, info)
        anew = pool.submit(second.next_rendezvous)  # its workers have failed
        with pytest.raises(DistStoreError, match="starts anew"):
            waiting.result(30)
        first.shutdown()
        assert anew.result(30).world_size == 1


def test_a_closed_job_is_seen_by_all(torch_handler: Make) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousClosedError

    first, second = torch_handler(2, 2), torch_handler(2, 2)
    together(first, second)
    first.set_closed()
    wait_until(lambda: second.num_nodes_waiting() > 0)
    assert second.is_closed()
    with pytest.raises(RendezvousClosedError, match="the job has ended: closed"):
        second.next_rendezvous()


# -- errors -------------------------------------------------------------------------------------------


def test_no_world_in_time(torch_handler: Make) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousTimeoutError

    with pytest.raises(RendezvousTimeoutError, match=r"no world within 1 s \(join_timeout\)"):
        torch_handler(2, 2, join_timeout="1").next_rendezvous()


def test_no_etcd(torch_handler: Make) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError

    with pytest.raises(RendezvousConnectionError, match=r"127\.0\.0\.1:1\b"):
        torch_handler(1, 1, endpoint="127.0.0.1:1", connect_timeout="1")


def test_other_bounds_are_refused(torch_handler: Make) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousStateError

    torch_handler(1, 2, last_call_timeout="0").next_rendezvous()
    with pytest.raises(RendezvousStateError, match="--nnodes=1:2"):
        torch_handler(1, 3).next_rendezvous()


def test_settings_are_ours_and_what_torch_adds_is_taken(torch_handler: Make) -> None:
    torch_handler(1, 1, rank=0, timeout=900)
    with pytest.raises(ValueError, match="unknown rendezvous setting 'no_such'"):
        torch_handler(1, 1, no_such="1")


@pytest.mark.parametrize("run_id_given", ["none", ""])
def test_several_nodes_need_the_name_of_their_job(torch_handler: Make, run_id_given: str) -> None:
    with pytest.raises(ValueError, match="--rdzv-id=my-job"):
        torch_handler(1, 2, run_id=run_id_given)
    assert torch_handler(1, 1, run_id=run_id_given).get_run_id().startswith("job-")


# -- the agents' store --------------------------------------------------------------------------------


def test_torchs_own_exchange_over_the_store(torch_handler: Make) -> None:
    from torch.distributed import PrefixStore
    from torch.distributed.elastic.utils.store import barrier, synchronize

    infos = together(torch_handler(2, 2), torch_handler(2, 2))

    def exchange(info: Any) -> Any:
        barrier(info.store, 2, "first", 30, info.rank)
        return synchronize(PrefixStore("below", info.store), b"%d" % info.rank, info.rank, 2, "key/", 30)

    assert in_parallel(*(lambda info=info: exchange(info) for info in infos)) == [[b"0", b"1"]] * 2


@pytest.mark.parametrize("prefixed", [False, True], ids=["python", "through C++"])
def test_operations(torch_handler: Make, prefixed: bool) -> None:
    from torch.distributed import PrefixStore

    handler = torch_handler(1, 1)
    own = handler.next_rendezvous().store
    store = PrefixStore("below", own) if prefixed else own
    store.set("a", "1")
    assert store.get("a") == b"1"
    store.set("bytes", b"\xff\0")
    assert store.get("bytes") == b"\xff\0"
    assert store.add("n", 2) == 2
    assert store.add("n", 3) == 5
    assert store.check(["a", "n"])
    assert not store.check(["a", "b"])
    assert store.compare_set("c", "", "1") == b"1"
    assert store.compare_set("c", "2", "3") == b"1"
    assert store.compare_set("c", "1", "2") == b"2"
    store.append("log", "x")
    store.append("log", "y")
    store.multi_set(["d", "e"], ["1", "2"])
    assert store.multi_get(["d", "e", "log"]) == [b"1", b"2", b"xy"]
    assert store.num_keys() >= 7
    assert store.delete_key("a")
    assert not store.delete_key("a")
    store.set_timeout(timedelta(seconds=5))
    assert store.timeout == timedelta(seconds=5)
    assert store.clone().get("c") == b"2"
    assert store.has_extended_api()


@pytest.mark.parametrize("prefixed", [False, True], ids=["python", "through C++"])
def test_what_is_not_there_in_time(torch_handler: Make, prefixed: bool) -> None:
    from torch.distributed import DistStoreError, PrefixStore

    handler = torch_handler(1, 1)
    own = handler.next_rendezvous().store
    store = PrefixStore("below", own) if prefixed else own
    with pytest.raises(DistStoreError, match=r"not set within 0\.2 s: '.*absent'"):
        store.wait(["absent"], timedelta(seconds=0.2))
    store.set_timeout(timedelta(seconds=1.2))
    started = time.monotonic()
    with pytest.raises(DistStoreError, match="absent"):
        store.get("absent")
    assert time.monotonic() - started > 1.1


def test_a_wait_ends_with_the_round(torch_handler: Make) -> None:
    from torch.distributed import DistStoreError

    first, second = torch_handler(1, 2), torch_handler(1, 2)
    info, _ = together(first, second)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(info.store.get, "of a peer that is lost")  # for five minutes
        second.shutdown()
        with pytest.raises(DistStoreError, match="left"):
            waiting.result(30)


# -- the plug-in --------------------------------------------------------------------------------------

_LOADED = """
import sys, torch
assert not [name for name in sys.modules if name.split(".")[0] == "elastic"], "torch alone loads nothing"
import torch.distributed.elastic.rendezvous
assert "elastic.interop.torchrun" in sys.modules, "its rendezvous package finds the plug-in"
print([name for name in ("grpc", "google.protobuf", "tenacity", "tabulate") if name in sys.modules])
"""


def test_the_plug_in_is_cheap() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_exit_barrier_has_the_keys_that_we_know() -> None:
    from torch.distributed.elastic.agent.server import api

    from elastic.interop.torch_store import EXIT_BARRIER

    assert api._TERMINAL_STATE_SYNC_ID == EXIT_BARRIER
