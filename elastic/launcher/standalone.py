"""The etcd of a job of one node: started for it on the loopback, and gone with it.

Adapter. The etcd layer is found by name when it is needed, because it loads gRPC, and the command
line must not.
"""

import importlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from elastic.launcher.errors import LaunchError
from elastic.utils.exit_codes import ExitCode

__all__ = ["standalone_etcd"]

logger = logging.getLogger("elastic.launcher")


@contextmanager
def standalone_etcd(environ: Mapping[str, str]) -> Iterator[str]:
    """Run an etcd for the length of the block; yields its endpoint.

    :param environ: where the path of an etcd binary may be set.
    :raises LaunchError: there is no etcd to run, or it does not start.
    """
    etcd = importlib.import_module("elastic.etcd")
    try:
        server = etcd.LocalServer.start(environment=environ)
    except etcd.EtcdError as error:
        raise LaunchError(str(error), ExitCode.UNAVAILABLE) from error
    with server:
        logger.info("started an etcd for this job at %s", server.endpoint)
        yield str(server.endpoint)
