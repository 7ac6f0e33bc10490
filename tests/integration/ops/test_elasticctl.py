"""The operator's command, on a real job."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.command import environment
from support.etcd import EtcdServer
from support.job import SLEEPER, Job, wait_until


def elasticctl(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "elastic.ops.elasticctl", *argv],
        env=environment({}),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_status_of_a_job_from_start_to_end(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:2", ttl=60) as job:
        where = ("--endpoint", etcd.endpoint, "status", job.run_id)
        agents = [job.start(name, job.script(SLEEPER), str(job.stop_file)) for name in ("n1", "n2")]
        number = max(agent.wait_for_world(2) for agent in agents)
        # A worker may speak before its node has written that it runs.
        nodes = [key for key in job.key_names() if key.startswith("nodes/")]
        wait_until(lambda: {job.record(key)["want"] for key in nodes} == {"ACTIVE"}, "both nodes are active")
        running = elasticctl(*where)
        assert running.returncode == 0
        assert f"round {number} runs with 2 nodes" in running.stdout
        found = json.loads(elasticctl(*where, "--json").stdout)
        assert (found["run_id"], found["round"], found["world_size"]) == (job.run_id, number, 2)
        assert {(node["rank"], node["state"]) for node in found["nodes"]} == {(0, "ACTIVE"), (1, "ACTIVE")}
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0]
        ended = json.loads(elasticctl(*where, "--json").stdout)
        assert (ended["outcome"], ended["exit_code"], ended["nodes"]) == ("SUCCEEDED", 0, [])
        assert ended["why"] == "the job has ended (succeeded): all workers have succeeded"


STEPPER = """
import json, os, sys, time
import elastic.worker
rank, world, number = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "ELASTIC_ROUND"))
print(json.dumps({"rank": rank, "world": world, "round": number}) + "\\n", end="", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1 if rank == 2 else 0.05)
    elastic.worker.step()
"""


def test_stragglers_are_found_when_an_operator_wants_it(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        where = ("--endpoint", etcd.endpoint, "stragglers", job.run_id)
        script = job.script(STEPPER)
        agent = job.start("a", script, str(job.stop_file), flags=("--nproc-per-node=4", "--no-stragglers"))
        agent.wait_for_world(4)
        assert elasticctl(*where, "on").returncode == 0
        agent.wait_until(lambda agent: "rank 2 is slow" in agent.text, "the slow one is named")
        assert job.record("control")["findStragglers"] is True
        assert elasticctl(*where, "off").returncode == 0
        job.finish()
        assert agent.wait() == 0
        ended = elasticctl(*where, "on")
        assert (ended.returncode, "no run" in ended.stderr) == (1, True)


def test_what_it_refuses(etcd: EtcdServer) -> None:
    unknown = elasticctl("--endpoint", etcd.endpoint, "status", "no-such-run")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == f"elasticctl: there is no run 'no-such-run' at {etcd.endpoint}\n"
    away = elasticctl("--endpoint", "127.0.0.1:1", "--conf", "connect_timeout=1", "status", "x")
    assert away.returncode == 69
    assert "Traceback" not in away.stderr
    wrong = elasticctl("--endpoint", etcd.endpoint, "--conf", "prefix", "status", "x")
    assert wrong.returncode == 2
    assert "--conf prefix: 'prefix' is not KEY=VALUE" in wrong.stderr
