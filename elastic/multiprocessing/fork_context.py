"""Workers that are Python functions, forked from one process that has imported them (``fork``).

A copy of *this* process would be a copy without its threads, whose locks may then be held for ever. So the
copies are made elsewhere: a fresh interpreter, the fork server of this one group, imports the function's
module once, forks a child for each worker, tells their process ids and ends. Since this process is a
subreaper meanwhile, the workers thereby become its own children, and are like any others.

Nothing here waits for the import. Until the server has ended the group has no worker; if it ends badly, each
worker that was not born fails with the server's exit code. The other side is
:mod:`elastic.multiprocessing.fork_server`.
"""

import json
import os
import select
import subprocess
from contextlib import ExitStack
from typing import Any

from elastic.multiprocessing.function_context import MultiprocessContext, make_memory_file, python_command
from elastic.multiprocessing.subreaper import Adoption
from elastic.multiprocessing.workers import Command, StartedWorker, Worker
from elastic.utils.tether import Tether


class ForkContext(MultiprocessContext):
    """Workers that are functions, and copies of one process that has imported their module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what :class:`PContext` takes."""
        super().__init__(*args, **kwargs)
        self._server: StartedWorker | None = None
        self._report = -1
        self._adoption: Adoption | None = None

    def _pack(self, rank: int) -> bytes:
        return self._pickled(tuple(self.args[rank]), rank)

    def _launch(self, tether: Tether, epoll: select.epoll) -> None:
        self._adoption = Adoption()
        environments = {rank: self._own_environment(rank) for rank in self.envs}
        first = environments[min(environments)] if environments else {}
        # A module may read its settings, OMP_NUM_THREADS for one, when it is imported.
        shared = {
            key: value
            for key, value in first.items()
            if all(environment.get(key) == value for environment in environments.values())
        }
        own = {key for environment in environments.values() for key in environment} - shared.keys()
        inherited = {key: value for key, value in os.environ.items() if key not in own}
        self._report = make_memory_file("report", b"")
        with ExitStack() as stack:
            passed: list[int] = [self._report]
            seats = []
            for rank in sorted(environments):
                stdout, stderr = stack.enter_context(self._output.targets(rank))
                fds = {"handover": self._handovers[rank], "result": self._results[rank]}
                passed += fds.values()
                passed += [target for target in (stdout, stderr) if target is not None and target >= 0]
                own_environment = environments[rank].items() - shared.items()
                seats.append(
                    {
                        **fds,
                        "local_rank": rank,
                        "stdout": stdout,
                        "stderr": stderr,
                        "environment": dict(own_environment),
                        "cpus": sorted(self._bindings.get(rank, ())),
                    }
                )
            function = self._pickled(self.entrypoint, 0)
            plan = json.dumps(seats).encode() + b"\n"
            handover = make_memory_file(
                "handover", self._search_path() + plan + self._preparation() + function
            )
            stack.callback(os.close, handover)
            self._server = StartedWorker(
                min(environments, default=0),
                Command(
                    argv=python_command("fork_server", handover, self._report),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(handover, *passed),
                ),
                environment={**inherited, **shared, **tether.environment},
                stdout=None,
                stderr=None,
            )
        epoll.register(self._server.pidfd, select.EPOLLIN)
        tether.hold(self._server.pid)

    def _look_for_births(self, tether: Tether, epoll: select.epoll) -> None:
        server = self._server
        if server is None or server.poll() is None:
            return
        epoll.unregister(server.pidfd)
        tether.release(server.pid)
        server.collect()
        self._server = None
        self._end_adoption()
        born, message = self._read_report()
        for rank in sorted(self.envs):
            if rank in born:
                self._add(Worker(rank, born[rank]), tether, epoll)
            else:
                missing = Worker(rank, server.pid, exitcode=server.exitcode or 1, message=message)
                self._add(missing, tether, epoll)

    def _read_report(self) -> tuple[dict[int, int], str]:
        """The process ids by local rank, and why there are no more of them, if the server knew."""
        born: dict[int, int] = {}
        message = ""
        with os.fdopen(self._report, "rb") as file:
            self._report = -1
            file.seek(0)
            for line in file.read().decode().splitlines():
                word, _, rest = line.partition(" ")
                if word == "failed":
                    message = rest
                else:
                    born[int(word)] = int(rest)
        return born, message

    def _release(self) -> None:
        super()._release()
        if self._report >= 0:
            os.close(self._report)
            self._report = -1
        if self._server is not None:
            self._server.collect()
            self._server = None
        self._end_adoption()

    def _end_adoption(self) -> None:
        if self._adoption is not None:
            self._adoption.end()
            self._adoption = None
