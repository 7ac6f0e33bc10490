"""From the wish to bind workers to CPUs to a set of CPUs for each. Never fatal: at worst nobody is bound.

Joins :mod:`elastic.multiprocessing.topology`, which reads the machine, and
:mod:`elastic.multiprocessing.affinity`, which decides. It binds nothing itself.
"""

import logging
from collections.abc import Mapping

from elastic.multiprocessing.affinity import NumaOptions, device_of_ranks, plan
from elastic.multiprocessing.topology import read_topology

logger = logging.getLogger(__name__)

DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"


def plan_bindings(
    options: NumaOptions | None, envs: Mapping[int, Mapping[str, str]], environ: Mapping[str, str]
) -> dict[int, frozenset[int]]:
    """Return the CPUs of each local rank; empty, after one warning, if they can't be bound as wished.

    Args:
        options: The wish; None means no binding.
        envs: The environment of each local rank, on top of ``environ``. It tells their devices.
        environ: This process's own environment.
    """
    if options is None:
        return {}
    visible = {rank: env.get(DEVICES_VARIABLE, environ.get(DEVICES_VARIABLE)) for rank, env in envs.items()}
    try:
        bindings = plan(
            read_topology(), options.affinity_mode, nprocs=len(envs), devices=device_of_ranks(visible)
        )
    except (OSError, ValueError) as error:
        logger.warning("workers are not bound to CPUs (%s): %s", options.affinity_mode.value, error)
        return {}
    for rank, cpus in sorted(bindings.items()):
        logger.info("worker %d runs on the CPUs %s", rank, ",".join(map(str, sorted(cpus))))
    return bindings
