"""The inside of a function worker: take the function over, call it, hand its value back.

Runs in the fresh interpreter that :mod:`elastic.multiprocessing.function_context` started. An exception
that leaves the function leaves this process too: Python prints it, the exit code is Python's own, and the
error file has it.
"""

import os
import pickle
from collections.abc import Callable, Sequence
from multiprocessing import spawn
from typing import IO, Any

from elastic.multiprocessing.errors import record
from elastic.multiprocessing.stack_signal import register_stack_dump

_is_importing_main = False


def refuse_while_importing() -> None:
    """Check that this isn't a worker that is still importing the script of its launcher.

    Raises:
        RuntimeError: It is: the script starts workers when it is imported.
    """
    if _is_importing_main:
        raise RuntimeError(
            "workers are started while this worker imports the script that started it: put the start under "
            "if __name__ == '__main__':"
        )


def main(handover: IO[bytes], result_fd: int) -> None:
    """Be a worker. Both descriptors are this worker's alone, not its children's."""
    os.set_inheritable(result_fd, False)
    register_stack_dump()
    with handover:
        record(_run)(handover, result_fd)


def _run(handover: IO[bytes], result_fd: int) -> None:
    import_main(handover)
    function, args = pickle.load(handover)  # noqa: S301 - written by our own launcher, in private memory
    handover.close()
    call(function, args, result_fd)


def import_main(handover: IO[bytes]) -> None:
    """Take over what the handover begins with: how to import the launcher's script."""
    global _is_importing_main  # noqa: PLW0603 - the script's import happens once in a process
    preparation = pickle.load(handover)  # noqa: S301 - written by our own launcher, in private memory
    _is_importing_main = True
    try:
        spawn.prepare(preparation)
    finally:
        _is_importing_main = False


def call(function: Callable[..., Any], args: Sequence[Any], result_fd: int) -> None:
    """Call the function and write what it returns.

    Raises:
        pickle.PicklingError: The value can't be handed to the launcher.
    """
    value = function(*args)
    try:
        data = pickle.dumps(value)
    except Exception as error:  # a class may raise what it likes when it is asked for its state
        raise pickle.PicklingError(
            f"the return value of {function.__qualname__}, of type {type(value).__name__}, can't be handed "
            f"to the launcher ({error}): return plain values"
        ) from error
    with os.fdopen(result_fd, "wb") as file:
        file.write(data)
