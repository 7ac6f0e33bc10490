"""Where logs lie on disk."""

import os
from pathlib import Path

import pytest

from elastic.multiprocessing.logs import DefaultLogsSpecs
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
