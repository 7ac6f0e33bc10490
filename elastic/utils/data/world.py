"""Where this process stands among those that share a dataset, as its framework or its environment says.

Imports no framework: a process group can be there only if somebody else has imported one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FRAMEWORKS = ("torch.distributed", "tensorplay.distributed")


@dataclass(frozen=True, slots=True)
class Place:
    """The number of replicas, and which of them this one is."""

    num_replicas: int
    rank: int


def current_place() -> Place:
    """By the default process group of torch or tensorplay if it is initialised, else by the environment.

    Raises:
        ValueError: The environment says it in part, or not in numbers.
    """
    for name in _FRAMEWORKS:
        framework: Any = sys.modules.get(name)
        # A build without process groups has no such function; is_available is no guide, for tensorplay's
        # says no even of a group that is there.
        if hasattr(framework, "is_initialized") and framework.is_initialized():
            return Place(framework.get_world_size(), framework.get_rank())
    return place_in(os.environ)


def place_in(environ: Mapping[str, str]) -> Place:
    """By ``WORLD_SIZE`` and ``RANK``; one replica where neither is set.

    Raises:
        ValueError: Only one of them is set, or one is no number.
    """
    if "WORLD_SIZE" not in environ and "RANK" not in environ:
        return Place(1, 0)
    return Place(_number(environ, "WORLD_SIZE"), _number(environ, "RANK"))


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ.get(name, ""))
    except ValueError:
        found = f"is {environ[name]!r}, not a number" if name in environ else "is not set"
        raise ValueError(
            f"the environment variable {name} {found}, so this worker's share of the samples is unknown: "
            "set both WORLD_SIZE and RANK, or give num_replicas and rank"
        ) from None
