"""The exit code of the launcher, as a table.

====  ===========================================================================================
 0    success; also a spare when the job ends, and an agent that comes after the job is done
 2    the command cannot be carried out as written; nothing was started
 69   etcd (or another rendezvous backend) cannot be used, or was lost for good
 70   a fault of the launcher itself
 71   the node check found this node to be bad, and it did not join
 75   not enough nodes came in time; trying again later may help
 76   the shared state cannot be used: unreadable, newer than this program, or of a different job
 N    the worker that failed first ended with code N
128+N the worker that failed first, or this agent, was ended by signal N
====  ===========================================================================================

Pure.
"""

from elastic.launcher.errors import LaunchError, UsageError
from elastic.rendezvous import errors as rendezvous
from elastic.utils.exit_codes import ExitCode

__all__ = ["ExitCode", "exit_code_of", "signal_exit_code"]


def signal_exit_code(number: int) -> int:
    """The exit code of a process that ended because of a signal, as shells write it."""
    return 128 + number


def exit_code_of(error: Exception) -> int:
    """The exit code for an error that ends the launcher."""
    match error:
        case LaunchError() | rendezvous.RendezvousClosedError():
            return error.exit_code
        case UsageError():
            return ExitCode.USAGE
        case rendezvous.RendezvousGracefulExitError():
            return ExitCode.SUCCESS
        case rendezvous.RendezvousConnectionError():
            return ExitCode.UNAVAILABLE
        case rendezvous.RendezvousTimeoutError() | rendezvous.RendezvousExhaustedError():
            return ExitCode.TIMEOUT
        case rendezvous.RendezvousStateError():
            return ExitCode.STATE
        case _:
            return ExitCode.INTERNAL
