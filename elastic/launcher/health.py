"""The answer to health checks, put together.

Composition. Loaded only where health checks are to be answered, since it needs an HTTP server.
"""

import logging

from elastic.agent.server.health import HealthServer
from elastic.agent.server.liveness import Liveness
from elastic.launcher.errors import UsageError
from elastic.utils.endpoints import host_and_port

__all__ = ["make_liveness"]

logger = logging.getLogger("elastic.launcher")


def make_liveness(host: str, port: int, *, has_etcd: bool) -> Liveness:
    """The instrument that answers at that address; port 0 is any free one. The caller closes it.

    :raises UsageError: nothing can listen there.
    """
    try:
        server = HealthServer(host, port)
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from error
    logger.info("health checks are answered at http://%s/healthz", host_and_port(*server.address))
    return Liveness(server, has_etcd=has_etcd)
