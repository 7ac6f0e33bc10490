"""How a job ends, what comes after it, and how a node is told that there is no world for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.etcd import EtcdServer, free_port, wait_until
from support.nodes import PATIENCE, Node, NodeProcess, parameters, records

from elastic.etcd import Client
from elastic.rendezvous import (
    Failure,
    Outcome,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousExhaustedError,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousTimeoutError,
    Standing,
    create_handler,
)

MakeNode = Callable[..., Node]
MakeProcess = Callable[..., NodeProcess]


def wait_record(client: Client, run_id: str, node: Node, want: str) -> None:
    def there() -> bool:
        return bool(records(client, run_id).get(f"nodes/{node.id}", {}).get("want") == want)

    wait_until(there, what=f"{node.id} {want}")


@pytest.mark.parametrize("closer", [0, 1, 2])
def test_closing_from_any_node_reaches_all(node: MakeNode, client: Client, run_id: str, closer: int) -> None:
    """One leads, one is a member, one is a spare; whichever closes it, all hear of it."""
    nodes = [node("2:2").follow()]
    wait_until(lambda: "leader" in records(client, run_id), what="a leader")
    nodes.append(node("2:2").follow())
    for each in nodes:
        each.until_world(2)
    nodes.append(node("2:2").follow())
    wait_record(client, run_id, nodes[2], "SPARE")
    nodes[closer].handler.set_closed()
    for each in nodes:
        each.until_over()
        assert each.handler.is_closed()
        assert each.handler.status().standing is Standing.CLOSED
        with pytest.raises(RendezvousClosedError, match="closed") as caught:
            each.handler.next_rendezvous()
        assert caught.value.exit_code == 1
        assert caught.value.terminal is not None
        assert caught.value.terminal.outcome is Outcome.CLOSED
    assert isinstance(nodes[2].error, RendezvousClosedError), "a blocked spare is woken"
    terminal = records(client, run_id)["closed"]
    assert (terminal["outcome"], terminal["nodeId"]) == ("CLOSED", nodes[closer].id)


def test_closing_reaches_blocked_joiners(node: MakeNode, client: Client, run_id: str) -> None:
    waiting, closing = node("3:3"), node("3:3")
    blocked = waiting.join()
    wait_record(client, run_id, waiting, "JOINING")
    closing.handler.set_closed()
    with pytest.raises(RendezvousClosedError):
        blocked.result(PATIENCE)


def test_closing_twice_keeps_the_first_word(node: MakeNode, client: Client, run_id: str) -> None:
    one, two = node("1:2"), node("1:2")
    one.handler.set_closed()
    first = records(client, run_id)["closed"]
    two.handler.set_closed()
    assert records(client, run_id)["closed"] == first
    assert two.handler.is_closed()


def test_a_new_handler_is_not_closed(node: MakeNode) -> None:
    assert not node("1:1").handler.is_closed()


def test_success_of_all_members_ends_the_job(node: MakeNode, client: Client, run_id: str) -> None:
    members = [node("2:2"), node("2:2")]
    for join in [each.join() for each in members]:
        join.result(PATIENCE)
    spare = node("2:2")
    waits = spare.join()
    wait_record(client, run_id, spare, "SPARE")
    assert members[0].handler.report_success()
    wait_record(client, run_id, members[0], "DONE")
    assert not members[1].handler.is_closed(), "one node's success is not the job's"
    assert members[1].handler.report_success()
    for each in members:
        status = each.until_status(lambda s: s.standing is Standing.CLOSED, what="the end")
        assert status.terminal is not None
        assert status.terminal.outcome is Outcome.SUCCEEDED
    with pytest.raises(RendezvousGracefulExitError, match="succeeded"):
        waits.result(PATIENCE)


def test_the_last_failure_ends_the_job_everywhere(node: MakeNode) -> None:
    nodes = [node("2:2"), node("2:2")]
    info, _ = [join.result(PATIENCE) for join in [each.join() for each in nodes]]
    failure = Failure(round=info.round, rank=0, local_rank=0, exit_code=3, message="it broke", final=True)
    nodes[0].handler.regroup("it broke", failure)
    nodes[1].until_status(lambda s: s.standing is Standing.SUPERSEDED, what="a newer round")
    nodes[1].handler.regroup("the other one failed")
    for each in nodes:
        with pytest.raises(RendezvousClosedError, match="it broke") as caught:
            each.handler.next_rendezvous()
        assert caught.value.exit_code == 3


def test_a_failure_within_the_budget_is_counted(node: MakeNode) -> None:
    only = node("1:1")
    info = only.join().result(PATIENCE)
    assert info.failures == 0
    failure = Failure(round=info.round, rank=0, local_rank=0, exit_code=3, message="it broke")
    only.handler.regroup("it broke", failure)
    assert only.join().result(PATIENCE).failures == 1


# -- after the end ----------------------------------------------------------------------------------


def finished(node: MakeNode, **conf: str) -> int:
    """A run that has succeeded; returns its round."""
    only = node("1:1", **conf)
    number = only.join().result(PATIENCE).round
    only.handler.report_success()
    only.until_status(lambda s: s.standing is Standing.CLOSED, what="the end")
    only.handler.shutdown()
    return number


def test_a_late_node_of_a_finished_job_does_not_start_it_again(
    node: MakeNode, client: Client, run_id: str
) -> None:
    finished(node, job_token="t1")
    before = records(client, run_id)
    late = node("1:1", job_token="t1")
    with pytest.raises(RendezvousClosedError, match="ended already: succeeded") as caught:
        late.handler.next_rendezvous()
    assert caught.value.exit_code == 0
    late.handler.shutdown()
    assert records(client, run_id) == before, "it wrote nothing"


@pytest.mark.parametrize("tokens", [("", ""), ("t1", "t2"), ("t1", ""), ("", "t2")])
def test_another_submission_begins_anew_with_a_higher_round(
    node: MakeNode, client: Client, run_id: str, tokens: tuple[str, str]
) -> None:
    number = finished(node, job_token=tokens[0])
    info = node("1:1", job_token=tokens[1]).join().result(PATIENCE)
    assert info.round > number
    assert "closed" not in records(client, run_id)


def test_a_whole_new_submission_forms_one_world(node: MakeNode) -> None:
    """Several new nodes meet the end of the run before, at the same time: one of them begins anew."""
    number = finished(node)
    infos = [join.result(PATIENCE) for join in [node("3:3").join() for _ in range(3)]]
    assert {info.round for info in infos} == {infos[0].round}
    assert infos[0].round > number
    assert sorted(info.rank for info in infos) == [0, 1, 2]


def test_after_all_nodes_were_killed_the_same_id_starts_again(
    node: MakeNode, process_of: MakeProcess, etcd: EtcdServer, run_id: str
) -> None:
    dead = [process_of(etcd.endpoint, run_id, "2:2", ttl=2) for _ in range(2)]
    number = max(each.until_world(2)["round"] for each in dead)
    for each in dead:
        each.kill()
    joins = [node("2:2").join() for _ in range(2)]
    infos = [join.result(PATIENCE) for join in joins]
    assert [info.world_size for info in infos] == [2, 2]
    assert infos[0].round == infos[1].round > number


# -- no world ---------------------------------------------------------------------------------------


def test_a_join_that_finds_too_few_says_who_came(node: MakeNode, client: Client, run_id: str) -> None:
    alone = node("3:4", join_timeout=4, node_name="only-one")
    with pytest.raises(RendezvousExhaustedError) as caught:
        alone.handler.next_rendezvous()
    text = str(caught.value)
    assert "no world within 4 s" in text
    assert "1 of at least 3 nodes: 2 missing" in text
    assert "only-one" in text
    assert records(client, run_id, "nodes/") == {}, "it took itself out"
    assert "leader" not in records(client, run_id)


def test_a_spare_that_waits_in_vain_times_out(node: MakeNode) -> None:
    node("1:1", node_name="runs").follow().until_world(1)
    spare = node("1:1", join_timeout=4, node_name="waits")
    with pytest.raises(RendezvousTimeoutError, match=r"round 1 runs with 1 nodes.*spare: waits"):
        spare.handler.next_rendezvous()


def test_one_who_gave_up_does_not_harm_the_next(node: MakeNode) -> None:
    with pytest.raises(RendezvousExhaustedError):
        node("2:2", join_timeout=3).handler.next_rendezvous()
    joins = [node("2:2").join() for _ in range(2)]
    assert [join.result(PATIENCE).world_size for join in joins] == [2, 2]


def test_an_unreachable_endpoint_is_refused_in_words(run_id: str) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    with pytest.raises(RendezvousConnectionError, match=endpoint):
        create_handler(parameters(endpoint, run_id, "1:1", connect_timeout=0.5))


def test_an_etcd_that_goes_before_the_join_ends_it(
    etcd_server: Callable[..., EtcdServer], node_of: MakeNode, run_id: str
) -> None:
    server = etcd_server()
    only = node_of(server.endpoint, run_id, "1:1", join_timeout=1, read_timeout=1)
    server.kill()
    with pytest.raises(RendezvousConnectionError, match="does not answer"):
        only.handler.next_rendezvous()
    assert not only.handler.shutdown(), "nobody heard the goodbye"


def test_other_bounds_are_refused_while_the_job_lives(node: MakeNode) -> None:
    first = node("1:2").follow()
    first.until_world(1)
    other = node("2:3")
    with pytest.raises(RendezvousStateError, match=r"--nnodes=1:2.*--nnodes=2:3"):
        other.handler.next_rendezvous()
    assert first.sizes == [1], "the job is not disturbed"
    assert other.handler.shutdown()


def test_other_bounds_are_refused_while_the_first_nodes_gather(
    node: MakeNode, client: Client, run_id: str
) -> None:
    first = node("2:2")
    waits = first.join()
    wait_until(lambda: "round" in records(client, run_id), what="the open round")
    with pytest.raises(RendezvousStateError, match=r"--nnodes=2:2.*--nnodes=1:1"):
        node("1:1").handler.next_rendezvous()
    node("2:2").follow().until_world(2)
    assert waits.result(PATIENCE).world_size == 2


def test_other_bounds_are_taken_once_the_job_is_gone(node: MakeNode) -> None:
    first = node("1:2").follow()
    first.until_world(1)
    first.close()
    info = node("1:3").join().result(PATIENCE)
    assert (info.world_size, info.participants[0].node_id != first.id) == (1, True)
    assert info.round > first.world.round
