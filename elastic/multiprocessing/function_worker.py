"""The inside of a function worker: take the function over, call it, hand its value back.

Runs in the fresh interpreter that :mod:`elastic.multiprocessing.function_context` started. An exception
that leaves the function leaves this process too: Python prints it, the exit code is Python's own, and the
error file has it.
"""

import os
import pickle
from multiprocessing import spawn
from typing import IO

from elastic.multiprocessing.errors import record

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
    with handover:
        record(_run)(handover, result_fd)


def _run(handover: IO[bytes], result_fd: int) -> None:
    global _is_importing_main  # noqa: PLW0603 - the script's import happens once in a process
    preparation = pickle.load(handover)  # noqa: S301 - written by our own launcher, in private memory
    _is_importing_main = True
    try:
        spawn.prepare(preparation)
    finally:
        _is_importing_main = False
    function, args = pickle.load(handover)  # noqa: S301
    handover.close()
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
