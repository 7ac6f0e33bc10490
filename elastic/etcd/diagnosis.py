"""Whether the endpoints are a usable etcd, and if not, the one sentence that says why and what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from elastic.etcd import errors, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.calls import Caller, Repeat
from elastic.etcd.probe import Finding, Found, look
from elastic.etcd.tls import Tls
from elastic.etcd.values import Keys
from elastic.utils.backoff import jitter
from elastic.utils.endpoints import Endpoint

# Seconds that a look at one endpoint may take for each of its steps.
_LOOK_SECONDS = 1.0

# A key that nobody has: a linearizable read of it needs a leader, a quorum and a known user.
_HEALTH_KEY = b"health"


def check(
    caller: Caller,
    endpoints: Sequence[Endpoint],
    *,
    tls: Tls | None,
    timeout: float | None,
    keys: Keys | None,
) -> None:
    """See `Client.check`."""
    deadline = time.monotonic() + (caller.default_timeout if timeout is None else timeout)
    while True:
        # Half of what is left is for the read, so that there is time to look at why it failed.
        seconds = max(min((deadline - time.monotonic()) / 2, caller.attempt_timeout), 0.001)
        try:
            _read(caller, keys, timeout=seconds)
            break
        except (errors.Unavailable, errors.Unsupported) as error:
            looks = _looks(endpoints, tls=tls, left=deadline - time.monotonic())
            verdict, final = explain(looks, error)
            if final:
                raise verdict from error
            pause = min(jitter(0.1, 0.5), deadline - time.monotonic())
            if caller.closed.wait(max(pause, 0.0)):
                raise errors.ClientClosed("the etcd client is closed") from error
            if time.monotonic() >= deadline:
                raise verdict from error
    _require_one_cluster(caller, remaining=deadline - time.monotonic())


def _read(caller: Caller, keys: Keys | None, *, timeout: float) -> None:
    request = wire.range_request(_HEALTH_KEY if keys is None else keys, limit=1, keys_only=True)
    try:
        caller.call(wire.RANGE, request, repeat=Repeat.READ, timeout=timeout)
    except errors.PermissionDenied:
        if keys is not None:
            raise


def _looks(endpoints: Sequence[Endpoint], *, tls: Tls | None, left: float) -> list[tuple[Endpoint, Finding]]:
    """A look at each endpoint, which takes a few steps; never less time for one than a look needs nearby."""
    seconds = _look_seconds(endpoints, left=left)
    return [(endpoint, look(endpoint, tls=tls, timeout=seconds)) for endpoint in endpoints]


def _look_seconds(endpoints: Sequence[Endpoint], *, left: float) -> float:
    return min(max(left / (3 * len(endpoints)), 0.1), _LOOK_SECONDS)


def explain(
    looks: Sequence[tuple[Endpoint, Finding]], error: errors.EtcdError
) -> tuple[errors.EtcdError, bool]:
    """The error to raise, and whether waiting longer is useless. Pure.

    It is useless only if every endpoint is something that waiting does not turn into our etcd. The first
    endpoint that is so gives the reason; without one, the first endpoint of all does.
    """
    if isinstance(error, errors.Unsupported):
        # A gRPC server has said itself that it is not etcd.
        return error, True
    hopeless = [(endpoint, finding) for endpoint, finding in looks if finding.found in _HOPELESS]
    endpoint, finding = (hopeless or list(looks))[0]
    if finding.found is Found.ETCD:
        return _etcd_without_answer(endpoint, error), False
    kind, fact, fix = _SENTENCES[finding.found]
    detail = f" ({finding.detail})" if finding.detail else ""
    others = f" (one of {len(looks)} endpoints)" if len(looks) > 1 else ""
    message = f"{fact.format(endpoint=endpoint, host=endpoint.host)}{detail}{others}: {fix}"
    return kind(message), len(hopeless) == len(looks)


def _etcd_without_answer(endpoint: Endpoint, error: errors.EtcdError) -> errors.EtcdError:
    if isinstance(error, errors.NoLeader):
        return error
    return errors.NoLeader(
        f"etcd at {endpoint} is up but does not answer a consistent read: it has probably lost its quorum; "
        f"check that a majority of its members is up ({error})"
    )


_HOPELESS = frozenset(
    {
        Found.OLD_ETCD,
        Found.WEB,
        Found.OTHER,
        Found.PLAIN,
        Found.TLS,
        Found.CERTIFICATE,
        Found.CLIENT_CERTIFICATE,
    }
)

_PORT = "give etcd's client address, usually port 2379"

_SENTENCES: dict[Found, tuple[Callable[[str], errors.EtcdError], str, str]] = {
    Found.NO_NAME: (
        errors.Unavailable,
        "the name {host!r} of the etcd endpoint {endpoint} does not resolve",
        "check the spelling and the DNS",
    ),
    Found.NOTHING: (
        errors.Unavailable,
        "cannot connect to etcd at {endpoint}",
        "check that etcd runs there, listens on that address, and is not behind a firewall",
    ),
    Found.SILENCE: (
        errors.Unavailable,
        "what listens at {endpoint} accepts connections but does not answer",
        "either etcd hangs there, or the port belongs to another service",
    ),
    Found.WEB: (errors.NotEtcd, "{endpoint} is a web server and not etcd", _PORT),
    Found.OTHER: (errors.NotEtcd, "{endpoint} is not an etcd client port", _PORT),
    Found.OLD_ETCD: (
        errors.Unsupported,
        "etcd at {endpoint} is too old and has no v3 API",
        "use version 3.4 or later",
    ),
    Found.TLS: (
        errors.TlsFailed,
        "etcd at {endpoint} expects TLS",
        "write the endpoint with https:// and give the CA file",
    ),
    Found.PLAIN: (
        errors.TlsFailed,
        "{endpoint} does not speak TLS",
        "write the endpoint with http:// and give no TLS files",
    ),
    Found.CERTIFICATE: (
        errors.TlsFailed,
        "the certificate of etcd at {endpoint} is not accepted",
        "give the CA that signed it, and the server name that it was made for",
    ),
    Found.CLIENT_CERTIFICATE: (
        errors.TlsFailed,
        "etcd at {endpoint} does not accept this client's certificate",
        "give a cert and key that its CA signed",
    ),
}


def _require_one_cluster(caller: Caller, *, remaining: float) -> None:
    """Refuses endpoints of different clusters: half of the job would not see the other half.

    Only of those that answer at once; an endpoint that is down is none of this check's business.
    """
    lines = caller.pool.lines()
    if len(lines) < 2:
        return
    seconds = max(min(remaining / len(lines), _LOOK_SECONDS), 0.05)
    clusters: dict[int, str] = {}
    for line in lines:
        if line.failures:
            continue
        try:
            answer = caller.call_on(line, wire.STATUS, pb.StatusRequest(), timeout=seconds)
        except errors.ClientClosed:
            raise
        except errors.EtcdError:
            continue
        clusters.setdefault(answer.header.cluster_id, str(line.endpoint))
    if len(clusters) > 1:
        (first, one), (second, other) = list(clusters.items())[:2]
        raise errors.MixedClusters(
            f"the endpoints {one} and {other} belong to different etcd clusters ({first:x} and {second:x}): "
            "give the members of one cluster"
        )
