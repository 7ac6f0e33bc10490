"""Between our values and etcd's messages, both ways; and the RPC methods with their message types.

Pure translation: nothing here calls anything. It is the only module that builds or reads request and
response messages of the key-value API.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.values import (
    Compare,
    Delete,
    DeleteResult,
    Event,
    Get,
    GetResult,
    Is,
    Keys,
    KeyValue,
    Member,
    Operation,
    OperationResult,
    Put,
    PutResult,
    Snapshot,
    Status,
    Target,
    Txn,
    TxnResult,
    as_range,
)

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """An RPC: its path and its message types."""

    path: str
    request: type[Q]
    response: type[R]

    @property
    def name(self) -> str:
        """The method alone, without its service."""
        return self.path.rpartition("/")[2]


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
PUT = Method("/etcdserverpb.KV/Put", pb.PutRequest, pb.PutResponse)
DELETE_RANGE = Method("/etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
# A stream in etcd's API. Called with one request it answers once and ends, so it works as a plain call,
# which has a deadline and needs no thread.
LEASE_KEEP_ALIVE = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
LEASE_TIME_TO_LIVE = Method(
    "/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse
)
MEMBER_LIST = Method("/etcdserverpb.Cluster/MemberList", pb.MemberListRequest, pb.MemberListResponse)
STATUS = Method("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)

_RELATIONS = {
    Is.EQUAL: pb.Compare.EQUAL,
    Is.NOT_EQUAL: pb.Compare.NOT_EQUAL,
    Is.GREATER: pb.Compare.GREATER,
    Is.LESS: pb.Compare.LESS,
}


def range_request(
    keys: Keys, *, revision: int = 0, limit: int = 0, serializable: bool = False, keys_only: bool = False
) -> pb.RangeRequest:
    span = as_range(keys)
    return pb.RangeRequest(
        key=span.start,
        range_end=span.end,
        revision=revision,
        limit=limit,
        serializable=serializable,
        keys_only=keys_only,
    )


def delete_request(keys: Keys) -> pb.DeleteRangeRequest:
    span = as_range(keys)
    return pb.DeleteRangeRequest(key=span.start, range_end=span.end)


def put_request(put: Put) -> pb.PutRequest:
    return pb.PutRequest(key=put.key, value=put.value, lease=put.lease)


def txn_request(txn: Txn) -> pb.TxnRequest:
    return pb.TxnRequest(
        compare=[_compare(compare) for compare in txn.compare],
        success=[_operation(operation) for operation in txn.success],
        failure=[_operation(operation) for operation in txn.failure],
    )


def _operation(operation: Operation) -> pb.RequestOp:
    if isinstance(operation, Put):
        return pb.RequestOp(request_put=put_request(operation))
    if isinstance(operation, Get):
        return pb.RequestOp(request_range=range_request(operation.keys, limit=operation.limit))
    if isinstance(operation, Delete):
        return pb.RequestOp(request_delete_range=delete_request(operation.keys))
    return pb.RequestOp(request_txn=txn_request(operation))


def _compare(compare: Compare) -> pb.Compare:
    span = as_range(compare.keys)
    message = pb.Compare(key=span.start, range_end=span.end, result=_RELATIONS[compare.relation])
    operand = compare.operand
    if compare.target is Target.VALUE:
        if not isinstance(operand, bytes):
            raise TypeError(f"a compare of a value needs bytes, not {operand!r}")
        message.target, message.value = pb.Compare.VALUE, operand
        return message
    if not isinstance(operand, int):
        raise TypeError(f"a compare of a {compare.target.value} needs an int, not {operand!r}")
    if compare.target is Target.VERSION:
        message.target, message.version = pb.Compare.VERSION, operand
    elif compare.target is Target.CREATE_REVISION:
        message.target, message.create_revision = pb.Compare.CREATE, operand
    elif compare.target is Target.MOD_REVISION:
        message.target, message.mod_revision = pb.Compare.MOD, operand
    else:
        message.target, message.lease = pb.Compare.LEASE, operand
    return message


def read_only(operations: Iterable[Operation]) -> bool:
    """Whether these operations write nothing, so that repeating them is harmless."""
    return all(
        read_only((*operation.success, *operation.failure))
        if isinstance(operation, Txn)
        else isinstance(operation, Get)
        for operation in operations
    )


def key_value(kv: pb.KeyValue) -> KeyValue:
    return KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def snapshot(response: pb.RangeResponse) -> Snapshot:
    return Snapshot(response.header.revision, tuple(map(key_value, response.kvs)), response.more)


def txn_result(response: pb.TxnResponse, *, revision: int | None = None) -> TxnResult:
    """A nested transaction's header may be empty: its revision is the outer one's."""
    revision = response.header.revision if revision is None else revision
    responses = tuple(_operation_result(each, revision=revision) for each in response.responses)
    return TxnResult(response.succeeded, revision, responses)


def _operation_result(response: pb.ResponseOp, *, revision: int) -> OperationResult:
    kind = response.WhichOneof("response")
    if kind == "response_put":
        return PutResult(revision)
    if kind == "response_range":
        found = response.response_range
        return GetResult(tuple(map(key_value, found.kvs)), found.more)
    if kind == "response_delete_range":
        return DeleteResult(response.response_delete_range.deleted)
    return txn_result(response.response_txn, revision=revision)


def event(message: pb.Event) -> Event:
    return Event(message.type == pb.Event.DELETE, key_value(message.kv))


def member(message: pb.Member) -> Member:
    return Member(
        message.ID, message.name, tuple(message.clientURLs), tuple(message.peerURLs), message.isLearner
    )


def status(message: pb.StatusResponse, *, endpoint: str) -> Status:
    return Status(
        endpoint=endpoint,
        cluster_id=message.header.cluster_id,
        member_id=message.header.member_id,
        version=message.version,
        leader=message.leader,
        revision=message.header.revision,
        raft_term=message.header.raft_term,
        db_size=message.dbSize,
        errors=tuple(message.errors),
    )
