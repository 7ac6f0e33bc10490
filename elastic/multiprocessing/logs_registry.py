"""Places for logs by name, ours and other packages': the entry points of the group ``elastic.logs_specs``.

The value of one is a subclass of :class:`LogsSpecs`, or a function that returns an instance. It takes
``log_dir``, ``redirects``, ``tee`` and ``local_ranks_filter`` by name, and of ``ranks_filter``, ``max_size``
and ``keep`` those that were asked for. Only the one that is asked for is loaded.
"""

import difflib
import importlib.metadata
from typing import Any

from elastic.multiprocessing.logs import LogsSpecs

GROUP = "elastic.logs_specs"


def create_logs_specs(name: str, **settings: Any) -> LogsSpecs:
    """Return the logs specs that a name stands for.

    Args:
        name: An entry point of :data:`GROUP`.
        settings: What it is called with.

    Raises:
        ValueError: There is no such entry point, or it refuses the settings.
        RuntimeError: What it names can't be loaded, or isn't what it should be.
        OSError: Logs can't be kept there.
    """
    entries = importlib.metadata.entry_points(group=GROUP)
    if name not in entries.names:
        known = sorted(entries.names)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}"
        raise ValueError(f"unknown logs specs {name!r}: {hint}")
    entry = next(iter(entries.select(name=name)))
    try:
        specs = entry.load()(**settings)
    except (ValueError, OSError):
        raise
    except Exception as error:  # importing and calling another package's code can raise anything
        raise RuntimeError(f"the logs specs {name!r} ({entry.value}) can't be used: {error!r}") from error
    if not isinstance(specs, LogsSpecs):
        raise RuntimeError(
            f"the logs specs {name!r} ({entry.value}) made a {type(specs).__name__}, which is no LogsSpecs: "
            "its plug-in is broken"
        )
    return specs
