"""Where the output of each worker goes on disk.

Layout: ``<log_dir>/<run_id>/round_<n>/<local_rank>/{stdout.log,stderr.log,error.json}``, always
absolute. Every attempt gets a directory of its own: where ``round_<n>`` exists already (another
attempt of the same round, another agent on a shared file system) it is ``round_<n>.1``, ``.2`` and so
on. Nothing that was written is ever deleted; see :meth:`DefaultLogsSpecs.close`.

This module makes directories. It opens no log and starts no process.
"""

import itertools
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from elastic.multiprocessing.log_file import Rotation
from elastic.multiprocessing.redirects import Std, Streams, to_map


@dataclass(frozen=True, slots=True)
class LogsDest:
    """Paths of one attempt, by local rank. An empty path means "not redirected".

    ``rotation`` says when the files of stdout and stderr are replaced by fresh ones.
    """

    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    tee_stdouts: dict[int, str] = field(default_factory=dict)
    tee_stderrs: dict[int, str] = field(default_factory=dict)
    error_files: dict[int, str] = field(default_factory=dict)
    filtered_stdout: str = ""
    filtered_stderr: str = ""
    rotation: Rotation | None = None


class LogsSpecs(ABC):
    """Decides the destinations of a worker group's output. Subclass it to put logs elsewhere.

    Args:
        log_dir: Where to put logs; None leaves it to the subclass.
        redirects: Streams that go to files only; a :class:`Redirects` will do, here and for ``tee``.
        tee: Streams that go to files and, with a prefix on each line, to the console.
        local_ranks_filter: Local ranks whose output reaches the console; None means all.
    """

    def __init__(
        self,
        log_dir: "str | os.PathLike[str] | None" = None,
        redirects: Streams = Std.NONE,
        tee: Streams = Std.NONE,
        local_ranks_filter: "set[int] | None" = None,
    ) -> None:
        self._log_dir = None if log_dir is None else os.fspath(log_dir)
        self._redirects = redirects
        self._tee = tee
        self._local_ranks_filter = local_ranks_filter

    @abstractmethod
    def reify(self, envs: Mapping[int, Mapping[str, str]]) -> LogsDest:
        """Make the directories of one attempt, given each worker's environment, and return the paths."""

    @property
    @abstractmethod
    def root_log_dir(self) -> str:
        """The directory under which the logs of all attempts lie; empty if there is none."""

    def close(self) -> None:  # noqa: B027 - a subclass need not clean up
        """Clean up after an attempt, which may be the last. Called when its workers are gone."""


class DefaultLogsSpecs(LogsSpecs):
    """The layout described at the head of this module.

    Args:
        log_dir: Made if missing. None means a new temporary directory, made at the first attempt;
            ``os.devnull`` means no logs and no error files.
        redirects: As for :class:`LogsSpecs`; so are ``tee`` and ``local_ranks_filter``.
        ranks_filter: Ranks in the whole job (``RANK``) whose output reaches the console; None means all. With
            both filters a worker must pass both.
        max_size: Bytes after which a log of stdout or stderr is replaced by a fresh one; None means never.
        keep: How many replaced logs are kept, as ``stdout.log.1`` (the newest), ``stdout.log.2``, ...

    Raises:
        NotADirectoryError: ``log_dir`` is something else than a directory.
        ValueError: ``max_size`` or ``keep`` is too small.
    """

    def __init__(
        self,
        log_dir: "str | os.PathLike[str] | None" = None,
        redirects: Streams = Std.NONE,
        tee: Streams = Std.NONE,
        local_ranks_filter: "set[int] | None" = None,
        *,
        ranks_filter: "set[int] | None" = None,
        max_size: int | None = None,
        keep: int = 5,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._ranks_filter = ranks_filter
        self._rotation = None if max_size is None else Rotation(max_size, keep)
        self._discards = self._log_dir == os.devnull
        self._is_temporary = self._log_dir is None
        self._root: Path | None = None
        if self._log_dir is not None and not self._discards:
            # Resolved now: the working directory may change between two attempts.
            self._root = Path(self._log_dir).absolute()
            if self._root.exists() and not self._root.is_dir():
                raise NotADirectoryError(f"the log directory {self._root} is a file: name a directory")

    @property
    def root_log_dir(self) -> str:
        """Absolute; empty before the first attempt with a temporary directory, and for ``os.devnull``."""
        return "" if self._root is None else str(self._root)

    def reify(self, envs: Mapping[int, Mapping[str, str]]) -> LogsDest:
        """Make one attempt's directories.

        Reads the run id (``ELASTIC_RUN_ID``, else ``TORCHELASTIC_RUN_ID``) and the round
        (``ELASTIC_ROUND``, else ``TORCHELASTIC_RESTART_COUNT``) from the environment of any worker, and each
        worker's ``RANK``.

        Raises:
            OSError: The directories can't be made.
        """
        ranks = sorted(envs)
        size = ranks[-1] + 1 if ranks else 0
        redirects = to_map(self._redirects, size)
        tees = to_map(self._tee, size)
        attempt = None if self._discards else self._make_attempt(ranks, envs[ranks[0]] if ranks else {})

        def place(rank: int, name: str) -> str:
            return os.devnull if attempt is None else str(attempt / str(rank) / name)

        shown = {rank for rank in ranks if self._reaches_console(rank, envs[rank])}
        stdouts, stderrs = dict.fromkeys(ranks, ""), dict.fromkeys(ranks, "")
        tee_stdouts: dict[int, str] = {}
        tee_stderrs: dict[int, str] = {}
        for std, name, files, tee_files in (
            (Std.OUT, "stdout.log", stdouts, tee_stdouts),
            (Std.ERR, "stderr.log", stderrs, tee_stderrs),
        ):
            for rank in ranks:
                is_shown = rank in shown
                if std & (redirects[rank] | tees[rank]):
                    files[rank] = place(rank, name)
                    if std & tees[rank] and is_shown:
                        tee_files[rank] = files[rank]
                elif not is_shown:
                    files[rank] = os.devnull
        return LogsDest(
            stdouts=stdouts,
            stderrs=stderrs,
            tee_stdouts=tee_stdouts,
            tee_stderrs=tee_stderrs,
            error_files={rank: "" if attempt is None else place(rank, "error.json") for rank in ranks},
            filtered_stdout="" if attempt is None else str(attempt / "filtered_stdout.log"),
            filtered_stderr="" if attempt is None else str(attempt / "filtered_stderr.log"),
            rotation=self._rotation,
        )

    def close(self) -> None:
        """Remove the directories of a temporary ``log_dir`` that hold nothing at all.

        So a group that wrote nothing leaves nothing. Files are never removed, nor is anything below a
        directory that the user named.
        """
        if not self._is_temporary or self._root is None:
            return
        for directory, _, _ in os.walk(self._root, topdown=False):
            # Asked anew, since what it held may just have been removed.
            if not any(Path(directory).iterdir()):
                Path(directory).rmdir()
        if not self._root.exists():
            self._root = None

    def _reaches_console(self, local_rank: int, env: Mapping[str, str]) -> bool:
        if self._local_ranks_filter is not None and local_rank not in self._local_ranks_filter:
            return False
        return self._ranks_filter is None or int(env.get("RANK", local_rank)) in self._ranks_filter

    def _make_attempt(self, ranks: Iterable[int], env: Mapping[str, str]) -> Path:
        try:
            attempt = self._claim_attempt(env)
            for rank in ranks:
                (attempt / str(rank)).mkdir()
        except OSError as error:
            place = self._root or tempfile.gettempdir()
            raise OSError(
                error.errno,
                f"logs can't be kept in {place}: {error.strerror}; give another log directory",
            ) from error
        return attempt

    def _claim_attempt(self, env: Mapping[str, str]) -> Path:
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="elastic_"))
        run_id = env.get("ELASTIC_RUN_ID") or env.get("TORCHELASTIC_RUN_ID") or "run"
        number = env.get("ELASTIC_ROUND") or env.get("TORCHELASTIC_RESTART_COUNT") or "0"
        # A run id is free text: as one path component it must not climb out of the log directory.
        name = quote(run_id, safe="@+=,:")
        run_dir = self._root / (name.replace(".", "%2E") if set(name) == {"."} else name)
        run_dir.mkdir(parents=True, exist_ok=True)
        for suffix in itertools.chain([""], (f".{again}" for again in itertools.count(1))):
            attempt = run_dir / f"round_{number}{suffix}"
            try:
                attempt.mkdir()
            except FileExistsError:
                continue
            return attempt
        raise AssertionError("unreachable: the suffixes don't end")
