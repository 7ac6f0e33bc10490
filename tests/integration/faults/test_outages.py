"""etcd is away for long: no worker restarts, and every agent says so once each way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import Agent, Job, wait_until

MakeServer = Callable[..., EtcdServer]
PassTime = Callable[[], None]

TTL = 3
LENGTHS = [pytest.param(3 * TTL, id="3ttl"), pytest.param(60, id="60s", marks=pytest.mark.slow)]


def warnings_of(agent: Agent, words: str) -> int:
    return len(re.findall(rf"WARNING.*{words}", agent.text))


def freeze(server: EtcdServer, pass_time: PassTime) -> None:
    server.pause()
    pass_time()
    server.resume()


def restart(server: EtcdServer, pass_time: PassTime) -> None:
    server.kill()
    pass_time()
    server.start().wait_ready()


def wipe(server: EtcdServer, pass_time: PassTime) -> None:
    server.kill()
    server.wipe()
    pass_time()
    server.start().wait_ready()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", LENGTHS)
@pytest.mark.parametrize(("outage", "version"), [(freeze, "3.5"), (restart, "3.4"), (wipe, "3.4")])
def test_an_outage_restarts_nobody(
    etcd_server: MakeServer,
    tmp_path: Path,
    outage: Callable[[EtcdServer, PassTime], None],
    version: str,
    seconds: float,
) -> None:
    server = etcd_server(version=version)
    with Job(server.endpoint, tmp_path, nodes="3:4", ttl=TTL) as job:
        agents = [job.start_diarist(name) for name in ("a", "b", "c")]
        first = max(agent.wait_for_world(3) for agent in agents)

        def pass_time() -> None:
            time.sleep(seconds)
            for agent in agents:  # one that stood still has not noticed yet
                agent.wait_for_line("etcd is away")

        outage(server, pass_time)
        back_at = time.monotonic()
        for agent in agents:
            agent.wait_for_line("etcd is back")
        # Who was not back in time would be missed by now.
        time.sleep(TTL + 1)
        wait_until(lambda: job.node_names() == {"a", "b", "c"}, "all nodes are registered")
        assert len(job.diary.starts()) == 3, f"workers were started anew\n{job.diary.entries()}"
        for agent in agents:
            assert warnings_of(agent, "etcd is away") == 1, agent.text
            assert warnings_of(agent, "etcd is back") == 1, agent.text
        print(f"looked until {time.monotonic() - back_at:.1f} s after etcd was back; ttl is {TTL} s")

        # And the job is not frozen: another node gets in.
        agents.append(job.start_diarist("d"))
        assert {agent.wait_for_world(4) for agent in agents} == {first + 1}
        job.finish()
        assert [agent.wait() for agent in agents] == [0] * 4
        job.diary.check()
