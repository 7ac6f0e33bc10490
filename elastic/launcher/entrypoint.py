"""The command of a worker, from what stands on the launcher's command line; and what people call it.

Pure. Whether the script is there is looked up by :mod:`elastic.launcher.lookup`.
"""

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

from elastic.launcher.arguments import Options

__all__ = ["entrypoint_name", "worker_command"]

# As `python script`, but inside an interpreter that is already up: the search path stays that of the
# current directory, and the script may be a directory or an archive.
_RUN_PATH = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def worker_command(options: Options, *, python: str) -> tuple[str, ...]:
    """The program that each worker runs, and its arguments.

    :param python: the interpreter of workers; its output is unbuffered, so that the last words of a
        worker that dies reach its log.
    """
    command = (options.script, *options.script_args)
    if options.no_python:
        return command
    if options.module:
        return (python, "-u", "-m", *command)
    if options.run_path:
        return (python, "-u", "-c", _RUN_PATH, *command)
    return (python, "-u", *command)


def entrypoint_name(entrypoint: Callable[..., Any] | str, args: Sequence[Any]) -> str:
    """What a report calls the job: the function, the program, or the script or module that python runs."""
    if not isinstance(entrypoint, str):
        return getattr(entrypoint, "__qualname__", repr(entrypoint))
    if not PurePath(entrypoint).name.startswith("python"):
        return entrypoint
    return next((str(arg) for arg in args if not str(arg).startswith("-")), entrypoint)
