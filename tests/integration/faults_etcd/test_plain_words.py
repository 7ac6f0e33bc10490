"""A full etcd, and one without a majority: what the command says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import Command
from support.etcd import BINARIES, EtcdCluster, EtcdServer
from support.job import SLEEPER, Job

from elastic.etcd import Client, NoSpace

MakeServer = Callable[..., EtcdServer]
QUOTA = 2 << 20


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    with Command(tmp_path) as starter:
        yield starter


@pytest.fixture(params=list(BINARIES))
def small(request: pytest.FixtureRequest, etcd_server: MakeServer) -> EtcdServer:
    """A server that takes two megabytes."""
    return etcd_server(version=request.param, arguments=[f"--quota-backend-bytes={QUOTA}"])


def fill(client: Client) -> None:
    """Write until the server takes no more."""
    value = bytes(1 << 18)

    def put_all() -> None:
        # Far more than the quota: the server looks at what it has already moved to its file.
        for number in range(400):
            client.put(b"filler/%d" % number, value)

    with pytest.raises(NoSpace):
        put_all()


def make_room(server: EtcdServer, client: Client) -> None:
    """What the message tells the operator to do."""
    client.delete_prefix(b"filler/")
    client.compact(client.get_prefix(b"filler/").revision)
    server.ctl("defrag")
    server.ctl("alarm", "disarm")


def start(command: Command, endpoint: str) -> list[str]:
    return [
        "--rdzv-backend=etcd",
        f"--rdzv-endpoint={endpoint}",
        "--rdzv-id=words",
        "--rdzv-conf=connect_timeout=6,last_call_timeout=0",
        command.script("print('the worker ran', flush=True)"),
    ]


def test_a_full_etcd_is_told_with_what_to_do(command: Command, small: EtcdServer) -> None:
    with Client([small.endpoint]) as client:
        fill(client)
        got = command.run(*start(command, small.endpoint))
        assert got.returncode == 69, got.stderr
        sentence = got.stderr.splitlines()[-1]
        assert f"etcd at {small.endpoint}: mvcc: database space exceeded" in sentence
        assert "compact and defragment etcd, then disarm its alarm" in sentence
        assert "Traceback" not in got.stderr
        assert got.stdout == ""
        make_room(small, client)
        assert command.run(*start(command, small.endpoint)).returncode == 0


def test_a_job_runs_on_over_a_full_etcd_and_ends_well_once_there_is_room(
    small: EtcdServer, tmp_path: Path
) -> None:
    with Job(small.endpoint, tmp_path, nodes="2", ttl=60) as job, Client([small.endpoint]) as client:
        script = job.script(SLEEPER)
        agents = [job.start(name, script, str(job.stop_file), flags=("--max-restarts=0",)) for name in "ab"]
        assert {agent.wait_for_world(2) for agent in agents} == {1}
        fill(client)
        job.finish()
        # The end must be written, and cannot be. Either of the two says so.
        agents[0].wait_for_line("database space exceeded; compact and defragment etcd")
        make_room(small, client)
        assert [agent.wait() for agent in agents] == [0, 0]
        assert all(len(agent.places()) == 1 for agent in agents), "no worker was started again"


def test_an_etcd_without_a_majority_is_told_as_such(command: Command, etcd_cluster: EtcdCluster) -> None:
    for member in etcd_cluster.members[1:]:
        member.pause()
    try:
        got = command.run(*start(command, etcd_cluster.endpoints[0]))
    finally:
        for member in etcd_cluster.members[1:]:
            member.resume()
    assert got.returncode == 69, got.stderr
    sentence = got.stderr.splitlines()[-1]
    assert etcd_cluster.endpoints[0] in sentence
    assert "check that a majority of" in sentence
    assert "Traceback" not in got.stderr
