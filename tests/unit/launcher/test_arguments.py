"""The command line as a pure function: what each flag means, and what is refused with which words."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.launcher.arguments import HelpRequested, Options, VersionRequested, help_text, parse
from elastic.launcher.errors import UsageError
from elastic.launcher.flags import FLAGS
from elastic.launcher.values import NodeRange
from elastic.multiprocessing.redirects import Std


def options(*argv: str, environ: Mapping[str, str] | None = None) -> Options:
    return parse([*argv, "train.py"], environ or {})


def refusal(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        parse(argv, environ or {})
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_defaults_are_one_worker_on_one_node() -> None:
    got = options()
    assert (got.nnodes, got.nproc_per_node, got.max_restarts) == (NodeRange(1, 1), 1, 0)
    assert (got.rdzv_backend, got.rdzv_endpoint, got.rdzv_id, got.rdzv_conf) == ("etcd", "", None, {})
    assert (got.role, got.start_method, got.redirects, got.tee) == ("default", "spawn", Std.NONE, Std.NONE)
    assert (got.script, got.script_args) == ("train.py", ())
    assert got.warnings == got.origins == ()


EVERY_FLAG: list[tuple[list[str], str, object]] = [
    (["--nnodes=4"], "nnodes", NodeRange(4, 4)),
    (["--nnodes", "1:4"], "nnodes", NodeRange(1, 4)),
    (["--nproc-per-node=gpu"], "nproc_per_node", "gpu"),
    (["--nproc_per_node", "8"], "nproc_per_node", 8),
    (["--standalone"], "standalone", True),
    (["--rdzv-endpoint=[::1]:2379,b,etcd://c:1"], "rdzv_endpoint", "[::1]:2379,b,etcd://c:1"),
    (["--rdzv_id=job.7"], "rdzv_id", "job.7"),
    (["--rdzv-id=none"], "rdzv_id", None),
    (["--rdzv-backend=memory"], "rdzv_backend", "memory"),
    (["--rdzv-conf=a=1,b=x=y"], "rdzv_conf", {"a": "1", "b": "x=y"}),
    (["--rdzv-conf", "a=1", "--rdzv_conf", "b=2"], "rdzv_conf", {"a": "1", "b": "2"}),
    (["--rdzv-conf", "a=1", "--rdzv-conf", "a=1"], "rdzv_conf", {"a": "1"}),
    (["--rdzv-timeout=0.5"], "rdzv_timeout", 0.5),
    (["--local-addr=::1"], "local_addr", "::1"),
    (["--node_rank=3"], "node_rank", 3),
    (["--master-addr=[::1]"], "master_addr", "::1"),
    (["--master_addr=node0.example"], "master_addr", "node0.example"),
    (["--master-port=29501"], "master_port", 29501),
    (["--master-port=0"], "master_port", 0),
    (["-m"], "module", True),
    (["--no-python"], "no_python", True),
    (["--run_path"], "run_path", True),
    (["--role=trainer"], "role", "trainer"),
    (["--start-method=forkserver"], "start_method", "forkserver"),
    (["--devices=0-2,5,GPU-8c1"], "devices", ("0", "1", "2", "5", "GPU-8c1")),
    (["--devices-per-rank=2"], "devices_per_rank", 2),
    (["--device-variable=HIP_VISIBLE_DEVICES"], "device_variable", "HIP_VISIBLE_DEVICES"),
    (["--virtual-local-rank"], "virtual_local_rank", True),
    (["--max-restarts=3"], "max_restarts", 3),
    (["--max-restarts=3", "--max-restarts=5"], "max_restarts", 5),
    (["--monitor-interval=1"], "monitor_interval", 1.0),
    (["--shutdown-timeout=0"], "shutdown_timeout", 0.0),
    (["--signals-to-handle=SIGTERM, SIGUSR1"], "signals_to_handle", ("SIGTERM", "SIGUSR1")),
    (["--signals-to-pass-on=SIGUSR1"], "signals_to_pass_on", ("SIGUSR1",)),
    (["--signals-to-pass-on=none"], "signals_to_pass_on", ()),
    (["--restart-backoff=0"], "restart_backoff", 0.0),
    (["--max-same-failures=0"], "max_same_failures", 0),
    (["--notice-timeout=30"], "notice_timeout", 30.0),
    (["--notice-signal=SIGUSR1"], "notice_signal", "SIGUSR1"),
    (["--log-dir=/tmp/a b"], "log_dir", "/tmp/a b"),
    (["-r3"], "redirects", Std.ALL),
    (["-t", "0:1,12:3"], "tee", {0: Std.OUT, 12: Std.ALL}),
    (["--local-ranks-filter=1,0,1"], "local_ranks_filter", (0, 1)),
    (["--local-ranks-filter=4-6,0"], "local_ranks_filter", (0, 4, 5, 6)),
    (["--ranks-filter=10,2-3"], "ranks_filter", (2, 3, 10)),
    (["--log-line-prefix-template=${rank} $round$$ "], "log_line_prefix_template", "${rank} $round$$ "),
    (["--log-max-size=100M"], "log_max_size", 100 * 1024**2),
    (["--log-max-size=512"], "log_max_size", 512),
    (["--log-max-size=2KiB"], "log_max_size", 2048),
    (["--log-keep=2"], "log_keep", 2),
    (["--logs-specs=mine"], "logs_specs", "mine"),
    (["--dump-stacks"], "dump_stacks", True),
    (["--numa-binding=core-complex"], "numa_binding", "core-complex"),
    (["--duplicate-stdout-filters=a,,b,c"], "duplicate_stdout_filters", ("a,b", "c")),
    (["--duplicate-stderr-filters=x"], "duplicate_stderr_filters", ("x",)),
    (["--exit-barrier-timeout=0"], "exit_barrier_timeout", 0.0),
    (["--finish-timeout=90"], "finish_timeout", 90.0),
    (["--event-log-handler=file:/var/log/a.jsonl"], "event_log_handler", "file:/var/log/a.jsonl"),
    (["--metrics-port=9400"], "metrics_port", 9400),
    (["--metrics_host=[::1]"], "metrics_host", "::1"),
    (["--health-port=0"], "health_port", 0),
    (["--health-host=0.0.0.0"], "health_host", "0.0.0.0"),
    (["--node-check=./check.sh --quick"], "node_check", "./check.sh --quick"),
    (["--node-check-timeout=5"], "node_check_timeout", 5.0),
    (["--first-report-timeout=600"], "first_report_timeout", 600.0),
    (["--silence-timeout=60"], "silence_timeout", 60.0),
    (["--no-stragglers"], "no_stragglers", True),
]


@pytest.mark.parametrize(("argv", "field", "value"), EVERY_FLAG)
def test_a_flag_sets_its_field(argv: list[str], field: str, value: object) -> None:
    assert getattr(options(*argv), field) == value


def test_the_list_above_misses_no_flag() -> None:
    assert {field for _, field, _ in EVERY_FLAG} == {flag.dest for flag in FLAGS}


def test_every_flag_is_in_the_help() -> None:
    text = help_text()
    assert all(flag.long in text for flag in FLAGS)
    with pytest.raises(HelpRequested, match="usage: elasticrun"):
        parse(["-h"], {})


def test_the_version_is_asked_for_before_the_script_alone() -> None:
    with pytest.raises(VersionRequested):
        parse(["--version"], {})
    assert options("--nnodes=1").script_args == ()
    assert parse(["train.py", "--version"], {}).script_args == ("--version",)


@pytest.mark.parametrize(
    ("argv", "backend"),
    [
        ([], "etcd"),
        (["--nnodes=2", "--rdzv-endpoint=a"], "etcd"),
        (["--nnodes=2", "--node-rank=0", "--master-addr=a", "--master-port=29500"], "static"),
        (["--nnodes=2", "--master-addr=a"], "static"),
        (["--nnodes=2", "--node-rank=1"], "static"),
        (["--master-port=29501"], "static"),
        (["--master-addr=localhost", "--node-rank=0"], "etcd"),
        (["--nnodes=2", "--node-rank=1", "--rdzv-endpoint=a"], "etcd"),
        (["--nnodes=2", "--node-rank=1", "--rdzv-backend=c10d", "--rdzv-endpoint=a"], "c10d"),
        (["--standalone", "--master-port=29501"], "etcd"),
        (["--standalone", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], "c10d"),
    ],
)
def test_the_backend_is_etcd_unless_the_line_is_one_of_static_ranks(argv: list[str], backend: str) -> None:
    assert options(*argv).rdzv_backend == backend


def test_flags_of_static_ranks_that_have_no_effect_are_one_warning() -> None:
    got = options("--rdzv-backend=c10d", "--node-rank=1", environ={"PET_MASTER_ADDR": "a"})
    (warning,) = got.warnings
    assert "--node-rank, --master-addr" in warning
    assert "c10d gives out the ranks" in warning
    got = options("--rdzv-backend=static", "--rdzv-endpoint=b", "--master-addr=a", "--node-rank=0")
    (warning,) = got.warnings
    assert warning.endswith("where node rank 0 is: --master-addr")
    assert options("--nnodes=2", "--master-addr=a", "--node-rank=1").warnings == ()


def test_a_free_port_of_ones_own_is_what_standalone_brings_anyway() -> None:
    assert options("--standalone", "--rdzv-endpoint=localhost:0").rdzv_endpoint == ""


@given(st.lists(st.text(min_size=1)))
def test_what_follows_the_script_belongs_to_the_script(args: list[str]) -> None:
    got = parse(["--nnodes=1", "train.py", *args], {})
    assert (got.script, got.script_args) == ("train.py", tuple(args))


@pytest.mark.parametrize(
    "args", [["--nnodes=3"], ["-h"], ["--", "-x"], ["--nporc", "1"], ["-m"], ["a", "--", "b"], ["--", "--"]]
)
def test_flags_after_the_script_are_the_scripts_even_if_they_are_ours(args: list[str]) -> None:
    assert options().nnodes == parse(["train.py", *args], {}).nnodes
    assert parse(["train.py", *args], {}).script_args == tuple(args)


@pytest.mark.parametrize("flags", [["-r", "3"], ["-r3"], ["-mr", "3"], ["-mr3"], ["--redirects", "3"]])
def test_a_flag_and_its_value_are_not_taken_for_the_script(flags: list[str]) -> None:
    got = parse([*flags, "train.py", "-t", "3"], {})
    assert (got.redirects, got.tee, got.script) == (Std.ALL, Std.NONE, "train.py")


def test_two_dashes_end_the_flags() -> None:
    got = parse(["--nnodes=1", "--", "train.py", "--lr", "1"], {})
    assert (got.script, got.script_args) == ("train.py", ("--lr", "1"))


REFUSED: list[tuple[list[str], list[str]]] = [
    (["--nnodes=3:1"], ["--nnodes=3:1", "below", "1:3"]),
    (["--nnodes=0"], ["--nnodes=0", "1 or more"]),
    (["--nnodes=-1:2"], ["--nnodes=-1:2", "1 or more"]),
    (["--nnodes=two"], ["--nnodes=two", "MIN:MAX"]),
    (["--nnodes=1:2:3"], ["--nnodes=1:2:3"]),
    (["--nnodes="], ["--nnodes="]),
    (["--nproc-per-node=0"], ["--nproc-per-node=0", "1 or more", "gpu"]),
    (["--nproc-per-node=xpu"], ["xpu", "auto, cpu or gpu"]),
    (["--max-restarts", "-1"], ["--max-restarts=-1", "0 or more"]),
    (["--monitor-interval=0"], ["above 0"]),
    (["--shutdown-timeout=nan"], ["finite"]),
    (["--rdzv-timeout=-5"], ["--rdzv-timeout=-5", "above 0"]),
    (["--rdzv-id="], ["--rdzv-id=", "is empty"]),
    (["--rdzv-id=a/b"], ["slash"]),
    (["--rdzv-id=a\nb"], ["control character", "a\\nb"]),
    (["--rdzv-id=.."], ["directory"]),
    (["--rdzv-conf=ttl"], ["'ttl' is not KEY=VALUE"]),
    (["--rdzv-conf=a=1,a=2"], ["'a' is given twice"]),
    (["--rdzv-conf=a=1", "--rdzv-conf=a=2"], ["'a' is given twice"]),
    (["--standalone", "--rdzv-endpoint=a:1"], ["--standalone", "a:1", "drop one"]),
    (["--standalone", "--nnodes=1:2"], ["--standalone", "1:2", "--rdzv-endpoint"]),
    (["--standalone", "--rdzv-backend=file"], ["--standalone", "file", "drop one"]),
    (["--rdzv-backend=etcd-v2"], ["--rdzv-backend=etcd-v2", "write etcd"]),
    (["--master-addr=a:29500"], ["--master-addr=a:29500", "is no host"]),
    (["--master-addr=a,b"], ["is no host"]),
    (["--master-port=65536"], ["--master-port=65536", "65535"]),
    (["--node-rank=-1"], ["--node-rank=-1", "0 or more"]),
    (["--standalone=1"], ["--standalone takes no value"]),
    (["--run_path=1"], ["--run-path takes no value"]),
    (["--start-method=clone"], ["spawn, fork, forkserver"]),
    (["-m", "--no-python"], ["--module and --no-python", "keep one"]),
    (["--run-path", "-m"], ["--module and --run-path"]),
    (["--devices=1-"], ["'1-'", "0-3"]),
    (["--devices=3-1"], ["'3-1'"]),
    (["--devices=0,0-1"], ["twice"]),
    (["--devices=0-99999999"], ["0-99999999"]),
    (["--device-variable=A-B"], ["environment variable"]),
    (["--local-ranks-filter=a"], ["0,2"]),
    (["--ranks-filter=3-1"], ["0-3,8"]),
    (["--ranks-filter=0-99999999"], ["0-3,8"]),
    (["--log-line-prefix-template=${rnak}:"], ["'${rnak}' stands for nothing", "local_rank", "$$"]),
    (["--log-line-prefix-template=5$"], ["'$' stands for nothing"]),
    (["--log-max-size=0"], ["512K"]),
    (["--log-max-size=5T"], ["512K"]),
    (["--log-keep=0"], ["1 or more"]),
    (["--numa-binding=numa"], ["node, socket, exclusive, core-complex"]),
    (["-r", "4"], ["--redirects=4", "3 both"]),
    (["--role="], ["--role=", "empty"]),
    (["--nporc-per-node=2"], ["unknown flag --nporc-per-node", "--nproc-per-node"]),
    (["--nproc", "2"], ["unknown flag --nproc:", "--nproc-per-node?"]),
    (["--max_restart=2"], ["unknown flag --max_restart:", "--max-restarts?"]),
    (["--learning-rate=2"], ["unknown flag --learning-rate", "after"]),
    (["-q"], ["unknown flag -q"]),
]


@pytest.mark.parametrize(("argv", "words"), REFUSED)
def test_what_cannot_be_meant_is_refused_in_one_sentence(argv: list[str], words: list[str]) -> None:
    text = refusal([*argv, "train.py"])
    assert all(word in text for word in words), text


@pytest.mark.parametrize("argv", [[], ["--nnodes=1"], ["--standalone", "--"]])
def test_a_missing_script_is_named(argv: list[str]) -> None:
    assert "no script" in refusal(argv)


@pytest.mark.parametrize("argv", [["--nnodes"], ["--nnodes", "--", "x"], ["--nnodes", "--standalone", "x"]])
def test_a_missing_value_is_named(argv: list[str]) -> None:
    assert "--nnodes: expected one argument" in refusal(argv)


def test_an_unknown_flag_is_told_before_the_script_that_it_swallowed() -> None:
    assert "unknown flag --nporc" in refusal(["--nporc=2"])


def test_a_variable_stands_in_for_a_flag_and_says_so() -> None:
    got = options(environ={"PET_NNODES": "2:3", "PET_STANDALONE": "0", "PET_RDZV_CONF": "password=s3cret"})
    assert got.nnodes == NodeRange(2, 3)
    assert got.rdzv_conf == {"password": "s3cret"}
    assert "--nnodes is 2:3, from PET_NNODES" in got.origins
    assert not any("s3cret" in origin for origin in got.origins)
    assert any("password" in origin for origin in got.origins)


def test_the_flag_wins_over_its_variable_and_says_so() -> None:
    got = options("--nnodes=1", environ={"PET_NNODES": "junk"})
    assert got.nnodes == NodeRange(1, 1)
    assert got.origins == ("--nnodes is 1, from the command line; PET_NNODES is not used",)


def test_a_variable_that_is_empty_is_not_set() -> None:
    assert options(environ={"PET_NNODES": "", "PET_RDZV_ID": ""}) == options()


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("0", False), ("No", False)])
def test_a_switch_as_a_variable(text: str, value: bool) -> None:
    assert options(environ={"PET_VIRTUAL_LOCAL_RANK": text}).virtual_local_rank is value


def test_a_bad_variable_is_refused_by_its_own_name() -> None:
    assert refusal(["train.py"], {"PET_NNODES": "3:1"}).startswith("PET_NNODES=3:1: ")
    assert "write 1 or 0" in refusal(["train.py"], {"PET_MODULE": "maybe"})


def test_variables_of_no_flag_are_one_warning_with_the_near_match() -> None:
    got = options(environ={"PET_N_PROC_PER_NODE": "8", "PET_FOOD": "cat", "PETS": "1"})
    (warning,) = got.warnings
    assert "PET_N_PROC_PER_NODE (did you mean PET_NPROC_PER_NODE?)" in warning
    assert "PET_FOOD" in warning
    assert "PETS" not in warning
