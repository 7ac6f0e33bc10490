"""Launching from Python: ``elastic_launch`` and ``launch_agent``, as torch and tensorplay have them.

A service over :mod:`elastic.launcher.assembly`: it turns how the agent ended into a value or an
exception. The command, :mod:`elastic.run`, turns the same into text and an exit code.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from elastic.agent.server import ElasticAgent, RunResult
from elastic.launcher.assembly import Entrypoint, run_agent
from elastic.launcher.config import LaunchConfig
from elastic.launcher.entrypoint import entrypoint_name
from elastic.launcher.errors import LaunchError, UsageError
from elastic.multiprocessing.errors import ChildFailedError

__all__ = ["elastic_launch", "launch_agent"]


class elastic_launch:  # noqa: N801 (the documented name)
    """A callable that runs ``entrypoint`` in the workers of this node and takes part in the job.

    ``elastic_launch(config, train)(lr)`` calls ``train(lr)`` in every worker and returns what each
    returned; ``elastic_launch(config, "python")("train.py")`` runs a program. See :func:`launch_agent`.
    """

    def __init__(self, config: LaunchConfig, entrypoint: Entrypoint | None) -> None:
        self._config = config
        self._entrypoint = entrypoint

        self._lock = threading.Lock()
        self._agent: ElasticAgent | None = None
        self._is_told_to_stop = False

    def __call__(self, *args: Any) -> dict[int, Any]:
        return _launch(self._config, self._entrypoint, args, on_agent=self._keep)

    def stop(self) -> None:
        """Have this node leave the job, from another thread than the one that made the call.

        It returns at once; the call then stops the workers and returns an empty dictionary. Called again it
        kills them. Off the main thread, where no signal is handled, it is the way to end a launch. A launch
        that was stopped before it began ends at once; it cannot be used again.
        """
        with self._lock:
            self._is_told_to_stop = True
            if self._agent is not None:
                self._agent.stop()

    def _keep(self, agent: ElasticAgent) -> None:
        with self._lock:
            self._agent = agent
            if self._is_told_to_stop:
                agent.stop()


def launch_agent(config: LaunchConfig, entrypoint: Entrypoint | None, args: Sequence[Any]) -> dict[int, Any]:
    """Run one agent to its end.

    :param entrypoint: a function that each worker calls, or a program that each worker runs.
    :param args: its arguments.
    :returns: what the workers of this node returned, by global rank; None for each program. Empty for
        a spare, and for an agent that came after the job was done.
    :raises UsageError: (a ``ValueError``) what was asked for cannot be done; nothing was started.
    :raises ChildFailedError: workers failed more often than ``max_restarts`` allows, on this node or on
        another; its text is the report, and its first failure the one that ended the job.
    :raises LaunchError: the job failed for another reason.
    :raises RendezvousError: the rendezvous cannot be used.
    :raises SignalException: this agent was told to leave by a signal, and has left.
    """
    return _launch(config, entrypoint, args, on_agent=None)


def _launch(
    config: LaunchConfig,
    entrypoint: Entrypoint | None,
    args: Sequence[Any],
    *,
    on_agent: Callable[[ElasticAgent], None] | None,
) -> dict[int, Any]:
    if entrypoint is None:
        raise UsageError("there is no entrypoint; give a function, or the name of a program")
    result = run_agent(config, entrypoint, args=args, environ=os.environ, on_agent=on_agent)
    raise_for_failure(result, entrypoint, args=args)
    return dict(result.return_values)


def raise_for_failure(result: RunResult, entrypoint: Entrypoint, *, args: Sequence[Any]) -> None:
    """Raise what :func:`launch_agent` documents if the agent did not succeed."""
    if not result.is_failed():
        return
    if result.failures:
        raise ChildFailedError(entrypoint_name(entrypoint, args), result.victims | result.failures)
    raise LaunchError(result.reason, result.exit_code)
