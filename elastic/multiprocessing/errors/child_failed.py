"""The exception with which a launcher reports that workers failed."""

from collections.abc import Mapping

from elastic.multiprocessing.errors.failures import ProcessFailure, sort_by_cause
from elastic.multiprocessing.errors.report import format_report


class ChildFailedError(Exception):
    """One or more workers failed; ``str()`` of it is the report.

    Args:
        name: What was launched.
        failures: By global rank. The agent's victims may be among them, marked as such.

    Raises:
        ValueError: There are no failures.
    """

    def __init__(self, name: str, failures: Mapping[int, ProcessFailure]) -> None:
        if not failures:
            raise ValueError(f"a ChildFailedError for {name!r} needs at least one failure")
        self.name = name
        self.failures = dict(failures)
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """Return the global rank and the failure that came first: the root cause."""
        return sort_by_cause(self.failures)[0]

    def summary(self) -> str:
        """Return the root cause in one sentence."""
        rank, failure = self.get_first_failure()
        return f"worker {rank} failed: {failure.exception() or failure.message}"

    def format_msg(self) -> str:
        """Return the report."""
        return format_report(self.name, self.failures)

    def __reduce__(self) -> "tuple[type[ChildFailedError], tuple[str, dict[int, ProcessFailure]]]":
        return type(self), (self.name, self.failures)
