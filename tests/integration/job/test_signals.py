"""Signals to an agent: four that end it in each of its states, and those that it passes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import ROOT, environment
from support.etcd import EtcdServer
from support.job import SLEEPER, Agent, Job, wait_until
from support.relay import Relay

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

# Rank 0 fails; the others take a second to end, and say that they were asked to.
SLOW_TO_END = """
import os, signal, sys, time
up = "up-" + os.environ["ELASTIC_ROUND"]
if os.environ["RANK"] == "0":
    while not os.path.exists(up):
        time.sleep(0.02)
    sys.exit(5)
def slowly(number, frame):
    print("asked to end", flush=True)
    time.sleep(1.5)
    os._exit(0)
signal.signal(signal.SIGTERM, slowly)
open(up, "w").close()
time.sleep(600)
"""


@pytest.fixture
def relay(etcd: EtcdServer) -> Iterator[Relay]:
    """Between the agents and etcd."""
    host, _, port = etcd.endpoint.rpartition(":")
    with Relay((host, int(port))) as relay:
        yield relay


Start = Callable[[Job, Relay], Agent]

CONF = "close_timeout=2,read_timeout=1,heartbeat_timeout=1"


def sleeper(job: Job, relay: Relay) -> Agent:
    flags = ("--shutdown-timeout=10", "--nproc-per-node=2")
    script = job.script(SLEEPER)
    return job.start("a", script, str(job.stop_file), flags=flags, endpoint=relay.endpoint, conf=CONF)


def before_etcd_answers(job: Job, relay: Relay) -> Agent:
    relay.deafen()
    agent = sleeper(job, relay)
    agent.wait_for_line("run id")
    return agent


def waiting_for_a_world(job: Job, relay: Relay) -> Agent:
    job.nodes = "2"
    agent = sleeper(job, relay)
    wait_until(job.node_names, "it is registered")
    return agent


def running(job: Job, relay: Relay) -> Agent:
    agent = sleeper(job, relay)
    agent.wait_until(lambda a: len(a.places()) == 2, "both workers run")
    return agent


def stopping(job: Job, relay: Relay) -> Agent:
    flags = ("--shutdown-timeout=10", "--nproc-per-node=2", "--max-restarts=9")
    agent = job.start("a", job.script(SLOW_TO_END), flags=flags, endpoint=relay.endpoint, conf=CONF)
    agent.wait_for_line("asked to end")
    return agent


def at_the_barrier(job: Job, relay: Relay) -> Agent:
    job.nodes = "2"
    other = job.directory / f"other-{job.run_id}"
    script = job.script(SLEEPER)
    agent = job.start("a", script, str(job.stop_file), endpoint=relay.endpoint, conf=CONF)
    job.start("b", script, str(other), endpoint=relay.endpoint, conf=CONF).wait_for_world(2)
    job.finish()
    wait_until(
        lambda: any(job.record(k)["want"] == "DONE" for k in job.key_names() if k.startswith("nodes/")),
        "its workers are done",
    )
    return agent


def without_etcd(job: Job, relay: Relay) -> Agent:
    agent = running(job, relay)
    relay.pause()
    agent.wait_for_line("etcd is away")
    return agent


@pytest.mark.parametrize(
    "state",
    [before_etcd_answers, waiting_for_a_world, running, stopping, at_the_barrier, without_etcd],
    ids=lambda state: state.__name__,
)
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_ends_an_agent_in_any_state(
    etcd: EtcdServer, relay: Relay, tmp_path: Path, number: signal.Signals, state: Start
) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = state(job, relay)
        agent.send(number)
        assert agent.wait() == 128 + number
        assert number.name in agent.text
        assert "Traceback (most recent call last)" not in agent.text.replace("KeyboardInterrupt", "")
        survivors = {other.process.pid for other in job.agents if other is not agent}
        assert survivors or job.processes() == [], "nothing of it is left"
        if state not in (before_etcd_answers, without_etcd):
            assert "a" not in job.node_names(), "its key outlived it"
        assert "closed" not in job.key_names(), "it ends this node's part and not the job"


DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


def test_a_second_signal_shortens_the_grace(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        agent = job.start("a", job.script(DEAF), flags=("--shutdown-timeout=300",))
        agent.wait_for_line("^up")
        agent.send(signal.SIGINT)
        agent.wait_for_line("which leaves the job")
        agent.send(signal.SIGINT)
        assert agent.wait() == 130
        assert job.processes() == []


def test_what_was_ignored_at_the_start_stays_ignored(etcd: EtcdServer, tmp_path: Path) -> None:
    """As under nohup: neither the agent nor its workers mind a hang-up."""
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            agent = job.start("a", job.script(SLEEPER), str(job.stop_file))
        finally:
            signal.signal(signal.SIGHUP, before)
        agent.wait_for_world(1)
        agent.send(signal.SIGHUP)
        time.sleep(0.2)
        job.finish()
        assert agent.wait() == 0


# Ranks other than 0 count a signal; rank 0 has no handler, and would die of it.
COUNTER = """
import os, signal, sys, time
told = f"rank {os.environ['RANK']} was told\\n"
if os.environ["RANK"] != "0":
    signal.signal(signal.SIGUSR1, lambda *_: print(told, end="", flush=True))
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


def test_news_reach_who_wants_them_and_stop_nobody(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        agent = job.start("a", job.script(COUNTER), str(job.stop_file), flags=("--nproc-per-node=3",))
        agent.wait_until(lambda a: a.text.count("up") == 3, "three workers")
        agent.send(signal.SIGUSR1)
        for rank in (1, 2):
            agent.wait_for_line(f"rank {rank} was told")
        agent.wait_for_line("SIGUSR1 is not passed on to local ranks 0")
        job.finish()
        assert agent.wait() == 0
        assert agent.text.count("was told") == 2
        assert len(job.agents) == 1


def test_news_before_there_are_workers_end_nothing(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="2") as job:
        script = job.script(SLEEPER)
        agent = job.start("a", script, str(job.stop_file))
        wait_until(job.node_names, "it is registered")
        agent.send(signal.SIGUSR2)
        agent.wait_for_line("SIGUSR2 is not passed on")
        other = job.start("b", script, str(job.stop_file))
        agent.wait_for_world(2)
        job.finish()
        assert [agent.wait(), other.wait()] == [0, 0]


IN_A_THREAD = """
import sys, threading, time
from pathlib import Path
from elastic.launcher import LaunchConfig, elastic_launch

config = LaunchConfig(nproc_per_node=2, rdzv_endpoint=sys.argv[1], run_id=sys.argv[2], shutdown_timeout=5)
launch = elastic_launch(config, sys.executable)
code = "import os, sys, time; open(sys.argv[1] + os.environ['RANK'], 'w'); time.sleep(600)"
result = []
thread = threading.Thread(target=lambda: result.append(launch("-c", code, sys.argv[3])))
thread.start()
while not all(Path(sys.argv[3] + rank).exists() for rank in "01"):
    time.sleep(0.02)
launch.stop()
thread.join(30)
print("result", result, "alive", thread.is_alive())
"""


def test_off_the_main_thread_stop_ends_it(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        done = subprocess.run(
            [sys.executable, "-c", IN_A_THREAD, etcd.endpoint, job.run_id, str(tmp_path / "up-")],
            env=environment({"PYTHONPATH": str(ROOT), "LOGLEVEL": "INFO"}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.strip() == "result [{}] alive False", done.stderr
        assert done.stderr.count("not in the main thread") <= 1
        assert job.processes() == []
        assert job.node_names() == set()
