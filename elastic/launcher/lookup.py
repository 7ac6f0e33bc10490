"""Looks up what the command line names, before anything starts: programs, scripts, hosts.

Adapter: reads the file system and the resolver, makes the directory for logs, starts nothing.
"""

import os
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from elastic.launcher.arguments import Options
from elastic.launcher.errors import UsageError
from elastic.utils.network import is_loopback, knows_itself_by_loopback

__all__ = ["check_script", "loopback_hosts", "make_log_dir", "python_program"]


def python_program(environ: Mapping[str, str]) -> str:
    """The interpreter of workers: ``PYTHON_EXEC``, else the one that runs this.

    :raises UsageError: PYTHON_EXEC names no program.
    """
    chosen = environ.get("PYTHON_EXEC")
    if not chosen:
        return sys.executable
    if shutil.which(chosen, path=environ.get("PATH")) is None:
        raise UsageError(f"PYTHON_EXEC={chosen} is no program; give the path of a Python interpreter")
    return chosen


def check_script(options: Options, environ: Mapping[str, str]) -> None:
    """Refuse a script or program that is not there.

    A module (``-m``) is looked up by the worker's own interpreter, which may not be this one.

    :raises UsageError: it is not there, or is not a program.
    """
    script = options.script
    if options.module:
        return
    there = Path(script).exists()
    if not options.no_python:
        if not there:
            raise UsageError(f"the script {script} does not exist in {Path.cwd()}; check its path")
        return
    if shutil.which(script, path=environ.get("PATH")) is not None:
        return
    if there:
        path = script if "/" in script else f"./{script}"
        raise UsageError(
            f"{script} is not a program that can be run; give its path ({path}) and make it executable, "
            "or drop --no-python"
        )
    raise UsageError(f"there is no program {script} in PATH; give its path, or drop --no-python")


def make_log_dir(directory: str | os.PathLike[str]) -> None:
    """Make a log directory where it is missing; refuse one that is none, or that cannot be written to.

    :raises UsageError: the text says what is in the way.
    """
    wanted = Path(directory).absolute()
    if str(wanted) == os.devnull:  # the way to say "no logs"
        return
    there = next(path for path in (wanted, *wanted.parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"the log directory {wanted} cannot be: {there} is a file; name a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"the log directory {wanted} cannot be written: {there} is not ours; choose another")
    try:
        wanted.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the log directory {wanted} cannot be made: {error.strerror}; choose another"
        ) from error


def loopback_hosts(hosts: Iterable[str], *, serves_names: bool = False) -> list[str]:
    """Those that mean this machine alone. A name that does not resolve is left to whoever connects.

    `serves_names`: what listens there has others reach this machine by a name that it knows itself by.
    """

    def means_this_machine(host: str, address: str) -> bool:
        return is_loopback(address) and not (serves_names and knows_itself_by_loopback(host, address))

    return [host for host in hosts if any(means_this_machine(host, each) for each in _addresses(host))]


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(address[4][0]) for address in found}
