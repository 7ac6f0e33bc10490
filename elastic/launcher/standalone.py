"""What the rendezvous of a single node needs, brought by its agent: on the loopback, and gone with it.

That is an etcd; or, where there is no etcd program or where the user named a backend over one, a key/value
store inside this process, which the backend opens itself at a free port.

Adapter. The etcd layer is found by name when it is needed, because it loads h2, and neither the command
line nor a job without etcd must.
"""

import importlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from elastic.launcher.errors import LaunchError
from elastic.utils.etcd_program import find_etcd
from elastic.utils.exit_codes import ExitCode

__all__ = ["Brought", "bring"]

logger = logging.getLogger("elastic.launcher")

_ANY_PORT = "127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class Brought:
    """The backend that a single node is to use, and the endpoint to give it."""

    backend: str
    endpoint: str


@contextmanager
def bring(backend: str, environ: Mapping[str, str]) -> Iterator[Brought]:
    """Run what the backend needs for the length of the block.

    :param backend: ``etcd``, which may turn into a store, or the name of a backend over one.
    :param environ: where the path of an etcd binary may be set.
    :raises LaunchError: the etcd does not start.
    """
    if backend != "etcd":
        yield Brought(backend, _ANY_PORT)
    elif _has_etcd(environ):
        with _etcd(environ) as brought:
            logger.info("started an etcd for this job at %s", brought.endpoint)
            yield brought
    else:
        logger.info("no etcd program found: this job keeps its membership in a store of its own (p10d)")
        yield Brought("p10d", _ANY_PORT)


def _has_etcd(environ: Mapping[str, str]) -> bool:
    """Whether there is an etcd to start, or one was named; a wrong one is refused when it is started."""
    try:
        return find_etcd(environ) is not None
    except ValueError:
        return True


@contextmanager
def _etcd(environ: Mapping[str, str]) -> Iterator[Brought]:
    etcd = importlib.import_module("elastic.etcd")
    try:
        server = etcd.LocalServer.start(environment=environ)
    except etcd.EtcdError as error:
        raise LaunchError(str(error), ExitCode.UNAVAILABLE) from error
    with server:
        yield Brought("etcd", str(server.endpoint))
