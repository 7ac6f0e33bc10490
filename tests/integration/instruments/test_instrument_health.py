"""Health checks through every state of a job: healthy in all of them, and ready only while workers run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.instruments import WORKER, Answer, Probe
from support.job import Agent, Job, wait_until

# A worker that takes its time to stop, may be told to fail twice, and ends well when its node is told to.
SCRIPT = (
    WORKER
    + """
def stop(*_):
    while os.path.exists(sys.argv[1] + ".hold"):
        time.sleep(0.02)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print(json.dumps(place) + "\\n", end="", flush=True)
while not os.path.exists(here + ".end") and not os.path.exists(sys.argv[1]):
    if os.path.exists(here + ".fail") and place["round"] < 3:
        sys.exit("on purpose")
    time.sleep(0.05)
"""
)


def start(job: Job, name: str, *more: str) -> Agent:
    flags = ("--health-port=0", "--max-restarts=5", "--notice-timeout=4", "--restart-backoff=3", *more)
    return job.start(name, job.script(SCRIPT), str(job.stop_file), flags=flags)


def ready(answers: list[Answer]) -> set[int]:
    return {answer.ready for answer in answers}


@pytest.mark.timeout(180)
def test_healthy_in_every_state_and_ready_while_workers_run(
    etcd_server: Callable[..., EtcdServer], tmp_path: Path
) -> None:
    server = etcd_server()
    with Job(server.endpoint, tmp_path, nodes="2:3", ttl=10) as job:
        a = start(job, "a")
        with Probe(a) as probe:
            assert ready(probe.gather("joining")) == {503}  # a second node is missing

            b = start(job, "b")
            first = a.wait_for_world(2)
            assert ready(probe.gather("running")) == {200}

            # The first restart is immediate, the second is not.
            Path(f"{job.stop_file}.a.fail").touch()
            assert ready(probe.gather("pausing")) == {503}
            number = a.wait_for_world(2, after_round=first + 1)
            assert ready(probe.gather("running")) == {200}

            hold = Path(f"{job.stop_file}.hold")
            hold.touch()
            c = start(job, "c")  # it gets in after a notice, which nobody acknowledges, and a slow stop
            assert ready(probe.gather("notice")) == {200}
            assert ready(probe.gather("stopping")) == {503}
            hold.unlink()
            a.wait_for_world(3, after_round=number)
            probe.gather("running")

            before = len(probe.answers)
            server.pause()
            a.wait_for_line("etcd is away")
            # What is said is one thing, and the loop hears of it a moment later.
            wait_until(lambda: not probe.ask("/healthz")[1]["etcd_connected"], "the health check tells of it")
            server.resume()
            assert set(probe.answers[before:]) == {Answer(200, 200, "running")}
            wait_until(lambda: probe.ask("/healthz")[1]["etcd_connected"], "etcd is back")

            Path(f"{job.stop_file}.a.end").touch()
            assert ready(probe.gather("barrier")) == {503}
            job.finish()
            assert [agent.wait() for agent in (a, b, c)] == [0, 0, 0]
            with pytest.raises(OSError, match="refused"):
                probe.ask("/healthz")
    assert {answer.healthy for answer in probe.answers} == {200}
    for answer in probe.answers:
        assert (answer.ready == 200) == (answer.state in ("running", "notice")), answer


def test_a_stopped_agent_is_not_healthy_until_it_goes_on(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        a = start(job, "a")
        a.wait_for_world(1)
        probe = Probe(a)
        assert (probe.ask("/healthz")[0], probe.ask("/readyz")[0]) == (200, 200)
        a.send(signal.SIGSTOP)
        status, content = probe.ask("/healthz")
        assert (status, content["healthy"]) == (503, False)
        assert content["last"]["state"] == "running"
        a.send(signal.SIGCONT)
        assert (probe.ask("/healthz")[0], probe.ask("/readyz")[0]) == (200, 200)
        job.finish()
        assert a.wait() == 0


@pytest.mark.slow
def test_an_agent_that_leaves_while_etcd_is_away_is_healthy_to_the_end(
    etcd_server: Callable[..., EtcdServer], tmp_path: Path
) -> None:
    server = etcd_server()
    with Job(server.endpoint, tmp_path, nodes="1", ttl=10) as job:
        a = start(job, "a", "--notice-timeout=0")
        a.wait_for_world(1)
        with Probe(a) as probe:
            probe.gather("running")
            server.pause()
            a.send(signal.SIGTERM)
            assert a.wait() == 143
            server.resume()
    assert {answer.healthy for answer in probe.answers} == {200}
    told = [answer.state for answer in probe.answers]
    assert set(told) <= {"running", "stopping", "leaving"}
    assert told.count("leaving") > 10
