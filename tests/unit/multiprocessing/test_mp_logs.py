"""Where logs lie on disk."""

import os
from pathlib import Path

import pytest

from elastic.multiprocessing.log_file import Rotation
from elastic.multiprocessing.logs import DefaultLogsSpecs
from elastic.multiprocessing.logs_registry import create_logs_specs
from elastic.multiprocessing.redirects import Std


def envs(count: int, **variables: str) -> dict[int, dict[str, str]]:
    return {rank: dict(variables) for rank in range(count)}


def test_one_directory_for_each_round_and_rank(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(tmp_path, redirects=Std.ALL)
    logs = specs.reify(envs(2, ELASTIC_RUN_ID="job", ELASTIC_ROUND="7", TORCHELASTIC_RESTART_COUNT="2"))
    assert logs.stdouts == {rank: f"{tmp_path}/job/round_7/{rank}/stdout.log" for rank in (0, 1)}
    assert logs.stderrs[1] == f"{tmp_path}/job/round_7/1/stderr.log"
    assert logs.error_files[0] == f"{tmp_path}/job/round_7/0/error.json"
    assert (tmp_path / "job/round_7/1").is_dir()
    assert logs.tee_stdouts == {}
    assert specs.root_log_dir == str(tmp_path)


def test_torchs_variables_are_read_where_ours_are_missing(tmp_path: Path) -> None:
    env = envs(1, TORCHELASTIC_RUN_ID="theirs", TORCHELASTIC_RESTART_COUNT="3")
    logs = DefaultLogsSpecs(tmp_path).reify(env)
    assert logs.error_files[0] == f"{tmp_path}/theirs/round_3/0/error.json"


def test_a_second_attempt_of_a_round_touches_nothing_of_the_first(tmp_path: Path) -> None:
    first = DefaultLogsSpecs(tmp_path).reify(envs(1))
    Path(first.error_files[0]).write_text("kept")
    second = DefaultLogsSpecs(tmp_path).reify(envs(1))
    assert second.error_files[0] != first.error_files[0]
    assert "round_0.1" in second.error_files[0]
    assert Path(first.error_files[0]).read_text() == "kept"


@pytest.mark.parametrize("run_id", ["../../escape", "a/b", "..", ".", "with space", "ünï"])
def test_a_run_id_never_leaves_the_log_directory(tmp_path: Path, run_id: str) -> None:
    logs = DefaultLogsSpecs(tmp_path / "logs").reify(envs(1, ELASTIC_RUN_ID=run_id))
    directory = Path(os.path.realpath(logs.error_files[0])).parent
    assert directory.parent.parent.parent == tmp_path / "logs"


def test_a_relative_directory_is_resolved_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    specs = DefaultLogsSpecs("logs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert specs.reify(envs(1)).error_files[0].startswith(f"{tmp_path}/logs/")


def test_a_file_is_no_log_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError, match=r"file is a file: name a directory"):
        DefaultLogsSpecs(file)


def test_a_place_that_can_not_be_written_is_named() -> None:
    with pytest.raises(OSError, match=r"logs can't be kept in /proc/nowhere: .*; give another log directory"):
        DefaultLogsSpecs("/proc/nowhere").reify(envs(1))


def test_devnull_means_no_logs() -> None:
    specs = DefaultLogsSpecs(os.devnull, redirects=Std.OUT)
    logs = specs.reify(envs(1))
    assert logs.stdouts == {0: os.devnull}
    assert logs.stderrs == {0: ""}
    assert logs.error_files == {0: ""}
    assert specs.root_log_dir == ""


def test_tee_implies_a_file_and_the_filter_silences_the_others(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(tmp_path, redirects={2: Std.OUT}, tee=Std.ERR, local_ranks_filter={0})
    logs = specs.reify(envs(3))
    assert sorted(logs.tee_stderrs) == [0]
    assert all(path.endswith("stderr.log") for path in logs.stderrs.values())
    assert logs.stdouts[0] == ""
    assert logs.stdouts[1] == os.devnull
    assert logs.stdouts[2].endswith("2/stdout.log")


def test_a_temporary_directory_goes_only_if_it_stayed_empty() -> None:
    specs = DefaultLogsSpecs()
    specs.reify(envs(2))
    root = Path(specs.root_log_dir)
    assert root.is_dir()
    specs.close()
    assert not root.exists()
    specs.close()

    error_file = Path(specs.reify(envs(2)).error_files[1])
    error_file.write_text("{}")
    specs.close()
    assert error_file.exists()
    error_file.unlink()
    specs.close()
    assert not error_file.parent.exists()


def test_a_directory_of_the_user_is_never_removed(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(tmp_path / "logs")
    logs = specs.reify(envs(1))
    specs.close()
    assert Path(logs.error_files[0]).parent.is_dir()


def test_ranks_of_the_job_are_filtered_too(tmp_path: Path) -> None:
    ranks = {rank: {"RANK": str(rank + 4)} for rank in range(4)}
    both = DefaultLogsSpecs(tmp_path, tee=Std.OUT, local_ranks_filter={0, 1}, ranks_filter={5, 6})
    assert sorted(both.reify(ranks).tee_stdouts) == [1]
    of_the_job = DefaultLogsSpecs(tmp_path, ranks_filter={5, 6})
    assert of_the_job.reify(ranks).stdouts == {0: os.devnull, 1: "", 2: "", 3: os.devnull}


def test_the_rotation_is_passed_on(tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(tmp_path, max_size=1024, keep=3).reify(envs(1))
    assert logs.rotation == Rotation(max_bytes=1024, keep=3)
    assert DefaultLogsSpecs(tmp_path).reify(envs(1)).rotation is None


PLUGIN = """
from elastic.multiprocessing import DefaultLogsSpecs

class Elsewhere(DefaultLogsSpecs):
    def __init__(self, log_dir, redirects, tee, local_ranks_filter):
        super().__init__(log_dir, redirects, tee, local_ranks_filter)

def nothing(**settings):
    return None
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with entry points, of which only ``elsewhere`` is any good."""
    info = tmp_path / "site" / "logs_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: logs-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[elastic.logs_specs]\nelsewhere = logs_plugin:Elsewhere\nbroken = logs_plugin:missing\n"
        "empty = logs_plugin:nothing\n"
    )
    (info.parent / "logs_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(info.parent))


SETTINGS = {"log_dir": None, "redirects": Std.OUT, "tee": Std.NONE, "local_ranks_filter": None}


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_is_found_by_its_name() -> None:
    assert type(create_logs_specs("elsewhere", **SETTINGS)).__name__ == "Elsewhere"
    assert type(create_logs_specs("default", **SETTINGS, max_size=5)) is DefaultLogsSpecs


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "more", "error", "words"),
    [
        ("elsewere", {}, ValueError, "unknown logs specs 'elsewere': did you mean 'elsewhere'?"),
        ("xyz", {}, ValueError, "known are .*broken, default, elsewhere"),
        ("broken", {}, RuntimeError, r"'broken' \(logs_plugin:missing\) can't be used: AttributeError"),
        ("elsewhere", {"max_size": 5}, RuntimeError, "can't be used: TypeError.*max_size"),
        ("empty", {}, RuntimeError, "made a NoneType, which is no LogsSpecs"),
        ("default", {"max_size": 0}, ValueError, "give at least 1"),
    ],
)
def test_a_plug_in_that_is_no_good_is_one_sentence(
    name: str, more: dict[str, int], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        create_logs_specs(name, **SETTINGS, **more)
    assert "\n" not in str(caught.value)
