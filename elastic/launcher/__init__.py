"""The launcher: from a command line or a ``LaunchConfig`` to a running agent.

``elastic_launch(LaunchConfig(...), entrypoint)(*args)`` is the command ``elasticrun`` from Python.
"""

from elastic.launcher.api import elastic_launch, launch_agent
from elastic.launcher.config import LaunchConfig
from elastic.launcher.errors import LaunchError, UsageError
from elastic.launcher.instrument_settings import InstrumentSettings

__all__ = [
    "InstrumentSettings",
    "LaunchConfig",
    "LaunchError",
    "UsageError",
    "elastic_launch",
    "launch_agent",
]
