"""Functions for workers to run. Importable in another process, unlike the tests themselves."""

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


class Unreadable:
    """Can be sent, but not received."""

    def __reduce__(self) -> Any:
        return (_explode, ())


def _explode() -> None:
    if os.environ.get("IS_WORKER") != "1":
        raise OSError("no such thing here")


class Named:
    """A function that this process need not import to hand it over."""

    def __init__(self, module: str, name: str) -> None:
        self.target = module, name

    def __reduce__(self) -> Any:
        return (_find, self.target)


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def multiply(first: Any, second: Any) -> Any:
    print("to stdout", flush=True)
    os.system("echo from a shell")
    print("to stderr", file=sys.stderr)
    return first * second


def execute(program: str) -> Any:
    """Run a program as ``python -c`` does; what it leaves in ``value`` is the return value."""
    names: dict[str, Any] = {"__name__": "program"}
    exec(program, names)
    return names.get("value")


def environment(name: str) -> str | None:
    return os.environ.get(name)


def fail(text: str) -> None:
    raise ValueError(text)


def leave(code: int) -> None:
    raise SystemExit(code)


def leave_at_once() -> None:
    os._exit(0)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def return_lambda() -> Any:
    return lambda: None


def return_unreadable() -> Any:
    return Unreadable()


def inherit() -> tuple[list[str], str]:
    """What this process has open beyond the standard streams, and what it reads from stdin."""
    links = [link for link in Path("/proc/self/fd").iterdir() if int(link.name) > 2]
    return [str(link.readlink()) for link in links if link.is_symlink()], sys.stdin.read()


def sleep_in_children(mark: str) -> None:
    """Wait for ever, beside a child that does so too."""
    if os.fork() == 0:
        os.execvp("bash", ["bash", "-c", "sleep 1000; :", mark])
    time.sleep(1000)
