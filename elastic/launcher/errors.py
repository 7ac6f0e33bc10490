"""What the launcher refuses, and how it ends: two errors, each one sentence for a person.

Pure values; every module of the package may raise them, only :mod:`elastic.run` turns them into
output and an exit code.
"""

__all__ = ["LaunchError", "UsageError"]


class UsageError(ValueError):
    """A request that cannot be carried out as written; nothing was started.

    The text is one sentence that names the value, the reason and the fix.
    """


class LaunchError(Exception):
    """The job, or this agent's part of it, ended without success for a reason outside its workers.

    ``exit_code`` is the launcher's exit code for it (see :mod:`elastic.launcher.exit_codes`).
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
