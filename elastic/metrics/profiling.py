"""A decorator that measures what a function does. Durations are taken on the monotonic clock."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from elastic.metrics.api import DEFAULT_GROUP, put_metric

P = ParamSpec("P")
R = TypeVar("R")


@overload
def prof(fn: Callable[P, R], group: str = ..., interval_ms: float | None = ...) -> Callable[P, R]: ...


@overload
def prof(
    fn: None = None, group: str = ..., interval_ms: float | None = ...
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def prof(
    fn: Callable[..., Any] | None = None,
    group: str = DEFAULT_GROUP,
    interval_ms: float | None = None,  # noqa: ARG001 - accepted as by put_metric
) -> Callable[..., Any]:
    """Measure a function, plain or async: as ``@prof``, or ``@prof(group="mine")``.

    Each call puts ``<name>.success`` 1 or ``<name>.failure`` 1, and ``<name>.duration.ms`` in whole
    milliseconds. The name is the class and method, or the last part of the module and the function. A call
    that is cancelled or interrupted is neither a success nor a failure.
    """

    def measured(function: Callable[..., Any]) -> Callable[..., Any]:
        name = _metric_name(function)
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                with _measuring(name, group):
                    return await function(*args, **kwargs)

            return run_async

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with _measuring(name, group):
                return function(*args, **kwargs)

        return run

    return measured if fn is None else measured(fn)


@contextmanager
def _measuring(name: str, group: str) -> Iterator[None]:
    start = time.monotonic_ns()
    try:
        yield
        put_metric(f"{name}.success", 1, group)
    except Exception:
        put_metric(f"{name}.failure", 1, group)
        raise
    finally:
        put_metric(f"{name}.duration.ms", (time.monotonic_ns() - start) // 1_000_000, group)


def _metric_name(function: Callable[..., Any]) -> str:
    qualified = function.__qualname__
    module = (function.__module__ or "").rpartition(".")[2]
    return qualified if "." in qualified or not module else f"{module}.{qualified}"
