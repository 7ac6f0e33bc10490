"""The arguments of a function, as its workers get them."""

from __future__ import annotations

from typing import Any

from elastic.launcher import LaunchConfig, elastic_launch
from elastic.utils import macros


def given(*arguments: Any) -> tuple[Any, ...]:
    return arguments


def test_macros_stand_for_each_workers_own_values() -> None:
    config = LaunchConfig(1, 1, 2, role="actor")
    place = f"{macros.role_name} {macros.role_rank}/{macros.role_world_size} $$ ${{rank}}"
    assert elastic_launch(config, given)(place, ["${local_rank}"], 7) == {
        0: ("actor 0/2 $$ ${rank}", ["${local_rank}"], 7),
        1: ("actor 1/2 $$ ${rank}", ["${local_rank}"], 7),
    }
