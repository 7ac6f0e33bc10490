"""Variables of this process that have to be there."""

from __future__ import annotations

import os


def get_env_variable_or_raise(env_name: str) -> str:
    """The value of an environment variable that the caller can't do without.

    Raises:
        ValueError: The variable is not set, or set to nothing.
    """
    value = os.environ.get(env_name)
    if not value:
        state = "not set" if value is None else "empty"
        raise ValueError(
            f"the environment variable {env_name} is {state}, but is needed here: "
            "set it, or start this program with elasticrun if it is one of a worker's own variables"
        )
    return value
