"""The table from gRPC's codes and etcd's texts to our errors, and what it says of the request's effect."""

from __future__ import annotations

import pytest

from elastic.etcd import errors

CODE = errors.Code


@pytest.mark.parametrize(
    ("code", "details", "kind", "applied"),
    [
        # Certainly nothing has happened.
        (CODE.UNAVAILABLE, "etcdserver: no leader", "NoLeader", "no"),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: too many requests", "Unavailable", "no"),
        (CODE.UNKNOWN, "raft proposal dropped", "Unavailable", "no"),
        (CODE.UNAUTHENTICATED, "etcdserver: invalid auth token", "TokenExpired", "no"),
        (CODE.INVALID_ARGUMENT, "etcdserver: user name is empty", "TokenExpired", "no"),
        (CODE.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", "TokenExpired", "no"),
        (
            CODE.INVALID_ARGUMENT,
            "etcdserver: authentication failed, invalid user ID or password",
            "AuthFailed",
            "no",
        ),
        (CODE.PERMISSION_DENIED, "etcdserver: permission denied", "PermissionDenied", "no"),
        (CODE.NOT_FOUND, "etcdserver: requested lease not found", "LeaseNotFound", "no"),
        (CODE.FAILED_PRECONDITION, "etcdserver: lease already exists", "LeaseExists", "no"),
        (CODE.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", "Compacted", "no"),
        (CODE.INVALID_ARGUMENT, "etcdserver: too many operations in txn request", "TooManyOps", "no"),
        (CODE.INVALID_ARGUMENT, "etcdserver: request is too large", "RequestTooLarge", "no"),
        (
            CODE.RESOURCE_EXHAUSTED,
            "grpc: received message larger than max (9)",
            "RequestTooLarge",
            "no",
        ),
        (CODE.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max", "ResponseTooLarge", "no"),
        (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", "NoSpace", "no"),
        (CODE.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request", "Rejected", "no"),
        (CODE.UNIMPLEMENTED, "unknown service etcdserverpb.KV", "Unsupported", "no"),
        # Something may have.
        (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded", "DeadlineExceeded", "maybe"),
        (CODE.UNAVAILABLE, "etcdserver: request timed out", "Unavailable", "maybe"),
        (CODE.UNAVAILABLE, "etcdserver: leader changed", "Unavailable", "maybe"),
        (CODE.UNAVAILABLE, "Socket closed", "Unavailable", "maybe"),
        (CODE.UNAVAILABLE, "GOAWAY received; too_many_pings", "Unavailable", "maybe"),
        (CODE.UNKNOWN, "context deadline exceeded", "Unavailable", "maybe"),
        (CODE.UNKNOWN, "etcdserver: not a primary lessor", "Unavailable", "maybe"),
        (CODE.INTERNAL, "Received RST_STREAM with error code 2", "Unavailable", "maybe"),
        (CODE.CANCELLED, "context canceled", "Unavailable", "maybe"),
    ],
)
def test_the_table(code: errors.Code, details: str, kind: str, applied: str) -> None:
    error = errors.from_status(code, details, endpoint="h:1")
    assert (type(error).__name__, error.applied) == (kind, applied)
    assert str(error).startswith("etcd at h:1: ")
    assert "\n" not in str(error)


@pytest.mark.parametrize("code", list(CODE))
def test_every_code_has_an_error(code: errors.Code) -> None:
    assert isinstance(errors.from_status(code, "", endpoint="h:1"), errors.EtcdError)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("rpc error: code = PermissionDenied desc = etcdserver: permission denied", errors.TokenExpired),
        ("rpc error: code = Unauthenticated desc = etcdserver: invalid auth token", errors.TokenExpired),
        ("etcdserver: user name is empty", errors.TokenExpired),
        ("etcdserver: no leader", errors.Unavailable),
        ("", errors.Unavailable),
    ],
)
def test_reasons_for_cancelled_watches(reason: str, kind: type[errors.EtcdError]) -> None:
    assert type(errors.from_cancel_reason(reason, endpoint="h:1")) is kind
