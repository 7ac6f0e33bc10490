"""Workers that are Python functions, each in a fresh interpreter (``spawn``).

The function and its arguments travel in a private memory file, the return value comes back in another:
a value of any size can't block either side, as it would in a pipe that nobody reads yet. The other
side is :mod:`elastic.multiprocessing.function_worker`.
"""

import json
import os
import pickle
import subprocess
import sys
from typing import Any

from elastic.multiprocessing.contexts import PContext
from elastic.multiprocessing.function_worker import refuse_while_importing
from elastic.multiprocessing.workers import Command

# The search path comes first: it is what makes everything else importable.
_BOOTSTRAP = (
    "import json, os, sys; file = os.fdopen(int(sys.argv[1]), 'rb'); "
    "sys.path[:] = json.loads(file.readline()); "
    "from elastic.multiprocessing.{module} import main; main(file, *map(int, sys.argv[2:]))"
)


class MultiprocessContext(PContext):
    """Workers that are functions. A function is handed over by its name, so it must be importable."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what :class:`PContext` takes."""
        super().__init__(*args, **kwargs)
        self._results: dict[int, int] = {}
        self._handovers: dict[int, int] = {}

    def start(self) -> None:
        """Start all workers, or none; see :meth:`PContext.start`.

        Raises:
            pickle.PicklingError: The function or an argument can't be handed to another process.
        """
        refuse_while_importing()
        try:
            for rank in sorted(self.envs):
                self._handovers[rank] = make_memory_file("handover", self._pack(rank))
                self._results[rank] = make_memory_file("result", b"")
            super().start()
        except BaseException:
            self.close()
            raise
        for fd in self._handovers.values():
            os.close(fd)
        self._handovers.clear()

    def _command(self, local_rank: int) -> Command:
        handover, result = self._handovers[local_rank], self._results[local_rank]
        return Command(
            argv=python_command("function_worker", handover, result),
            stdin=subprocess.DEVNULL,  # as Python's own multiprocessing: the terminal is not shared
            pass_fds=(handover, result),
        )

    def _return_value(self, local_rank: int) -> Any:
        size = os.fstat(self._results[local_rank]).st_size
        if size == 0:  # it ended with os._exit(0)
            return None
        with os.fdopen(os.dup(self._results[local_rank]), "rb") as file:
            file.seek(0)
            try:
                return pickle.load(file)  # noqa: S301 - written by our own worker, in private memory
            except Exception as error:  # anything may happen while foreign classes are rebuilt
                raise ValueError(
                    f"the return value of worker {local_rank} can't be read here: {error!r}"
                ) from error

    def _release(self) -> None:
        for fd in [*self._handovers.values(), *self._results.values()]:
            os.close(fd)
        self._handovers.clear()
        self._results.clear()

    def _pack(self, rank: int) -> bytes:
        """Return what a worker is handed over."""
        call = self._pickled((self.entrypoint, tuple(self.args[rank])), rank)
        return self._search_path() + self._preparation() + call

    def _search_path(self) -> bytes:
        return json.dumps(sys.path).encode() + b"\n"

    def _preparation(self) -> bytes:
        preparation = _describe_main()
        if getattr(self.entrypoint, "__module__", None) == "__main__" and not preparation:
            raise pickle.PicklingError(
                f"{self._function_name} is defined in a session that another process can't import: "
                "put it into a file"
            )
        return pickle.dumps({**preparation, "sys_argv": sys.argv})

    def _pickled(self, value: object, rank: int) -> bytes:
        try:
            return pickle.dumps(value)
        except Exception as error:  # a class may raise what it likes when it is asked for its state
            raise pickle.PicklingError(
                f"{self._function_name} or its arguments for worker {rank} can't be handed to another "
                f"process ({error}): use a function at the top level of a module, and plain arguments"
            ) from error

    @property
    def _function_name(self) -> str:
        return getattr(self.entrypoint, "__qualname__", None) or repr(self.entrypoint)


def python_command(module: str, *fds: int) -> list[str]:
    """Return the command that runs ``main`` of a module of this package with open descriptors.

    The first is a handover, which begins with a line that holds the search path.
    """
    return [sys.executable, "-c", _BOOTSTRAP.format(module=module), *map(str, fds)]


def _describe_main() -> dict[str, Any]:
    """How another process finds this one's script, in the words of :func:`multiprocessing.spawn.prepare`.

    Empty if there is none. Python's own ``get_preparation_data`` isn't used because it settles the start
    method of this whole process.
    """
    script = sys.modules["__main__"]
    name = getattr(getattr(script, "__spec__", None), "name", None)
    if name is not None:
        return {"init_main_from_name": name}
    path = getattr(script, "__file__", None)
    if path is None or not os.path.isfile(path):  # noqa: PTH113 - a script that was piped in is "<stdin>"
        return {}
    return {"init_main_from_path": os.path.abspath(path)}  # noqa: PTH100


def make_memory_file(name: str, content: bytes) -> int:
    """Make a private file in memory that holds these bytes, and return its descriptor, at the start."""
    fd = os.memfd_create(f"elastic-{name}", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
