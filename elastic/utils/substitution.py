"""What may stand in the arguments of a worker for what only its launcher knows.

One implementation for commands and functions alike. The values are those of the worker's environment,
which the agent hands in; the agent's own environment says nothing about a worker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

_VARIABLES: Mapping[str, str] = {
    "record_id": "TORCHELASTIC_RUN_ID",
    "role_name": "ROLE_NAME",
    "role_rank": "ROLE_RANK",
    "role_world_size": "ROLE_WORLD_SIZE",
    "local_rank": "LOCAL_RANK",
    "local_world_size": "LOCAL_WORLD_SIZE",
}
# Not by string.Template, which would also change every other dollar of the user's.
_MACRO = re.compile(r"\$\{(" + "|".join(_VARIABLES) + r")\}")


class macros:  # noqa: N801 - the documented name
    """The macros of worker arguments; each attribute is the text that stands for the value.

    ``f"--out={macros.role_rank}.log"`` is ``"--out=${role_rank}.log"``, and each worker gets its own.
    """

    record_id = "${record_id}"
    """The job's run id."""
    role_name = "${role_name}"
    role_rank = "${role_rank}"
    """The worker's rank among those of its role, over all nodes."""
    role_world_size = "${role_world_size}"
    local_rank = "${local_rank}"
    local_world_size = "${local_world_size}"

    @staticmethod
    def substitute(
        args: Sequence[Any],
        local_rank: str | int | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """The arguments with every macro replaced whose value is known. All else stays as it is.

        Args:
            args: Only texts are looked at.
            local_rank: The value of that macro; it goes before the environment's.
            environ: The worker's environment, where the values are. By default it is this process's own,
                or none where ``local_rank`` is given: then only that macro is replaced.
        """
        if environ is None:
            values = {} if local_rank is not None else macros.to_map()
        else:
            values = macros.to_map(environ)
        if local_rank is not None:
            values["local_rank"] = str(local_rank)
        return [
            _MACRO.sub(lambda found: values.get(found[1], found[0]), arg) if isinstance(arg, str) else arg
            for arg in args
        ]

    @staticmethod
    def to_map(environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """The values by the macros' names, of those that the environment has; by default this process's."""
        environment = os.environ if environ is None else environ
        return {
            name: environment[variable] for name, variable in _VARIABLES.items() if variable in environment
        }
