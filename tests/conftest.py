"""Fixtures for the whole suite: real etcd servers, and a client."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from support.etcd import BINARIES, EtcdCluster, EtcdServer

from elastic.etcd import Client

# Agents leave alone what they inherit as ignored, from nohup, say: tests want them to mind it.
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# That a machine is slow at the moment is no fault of what is tested.
settings.register_profile("elastic", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elastic")


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server for the whole run. Do not stop it, and keep to the keys of `space`."""
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server.start().wait_ready()


@pytest.fixture(scope="session", params=list(BINARIES) or ["3.4"])
def each_etcd(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EtcdServer]:
    """As `etcd`, once for every version found."""
    with EtcdServer(tmp_path_factory.mktemp("etcd"), version=request.param) as server:
        yield server.start().wait_ready()


@pytest.fixture
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., EtcdServer]]:
    """Makes servers of the test's own, started and ready, which it may stop, kill and pause."""
    servers: list[EtcdServer] = []

    def make(**options: object) -> EtcdServer:
        server = EtcdServer(tmp_path_factory.mktemp("etcd"), **options)  # type: ignore[arg-type]
        servers.append(server)
        return server.start().wait_ready()

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """Three members of the test's own."""
    with EtcdCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.start()


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[Client]:
    """A client of `etcd`."""
    with Client([etcd.endpoint]) as client:
        yield client


@pytest.fixture
def space() -> bytes:
    """A key prefix that no other test uses."""
    return f"test/{uuid.uuid4().hex}/".encode()
