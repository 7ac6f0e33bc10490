"""What the launcher adds to the environment of each worker: threads and devices.

Pure. Nothing here changes the agent's own environment. The variables of the world (RANK, MASTER_ADDR
and so on) are the agent's; see :mod:`elastic.agent.server`.
"""

from collections.abc import Mapping, Sequence

__all__ = ["device_variables", "thread_count"]


def thread_count(environ: Mapping[str, str], local_world_size: int, *, cpus: int) -> int | None:
    """OMP_NUM_THREADS for each worker: an equal part of the CPUs.

    None leaves it alone: the user has set it, or a single worker may have them all.
    """
    if "OMP_NUM_THREADS" in environ or local_world_size == 1:
        return None
    return max(1, cpus // local_world_size)


def device_variables(devices: Sequence[str], *, variable: str, virtual: bool) -> dict[str, str]:
    """The variables that show one worker ``devices`` and hide the others.

    ``ELASTIC_DEVICES`` holds the same list whatever ``variable`` is. With ``virtual`` the worker takes
    its first device for local rank 0.
    """
    listed = ",".join(devices)
    added = {variable: listed, "ELASTIC_DEVICES": listed}
    if virtual:
        added["LOCAL_RANK"] = "0"
    return added
