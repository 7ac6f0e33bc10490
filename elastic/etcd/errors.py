"""What can go wrong with etcd, as types, and the one table that makes them from gRPC's words.

    EtcdError
      Unavailable           nobody answered, or could not; trying again later is right
        DeadlineExceeded      not within the time given
        NoLeader              the member has no leader: quorum is lost, or being elected
      Compacted             the history asked for is gone: read afresh and watch from there
      HistoryLost           the store is older than what it told before: its data was wiped or restored
      LeaseNotFound         the lease has ended
      Denied                etcd answered: you may not
        AuthFailed            wrong or missing user name or password
        TokenExpired          the session's token is no longer known (renewed by the client itself)
        PermissionDenied      the user has no right on these keys
      Rejected              etcd answered: this request can never be carried out
        TooManyOps  RequestTooLarge  ResponseTooLarge  NoSpace  LeaseExists  AuthNotEnabled
      Unusable              what listens there is not an etcd that this client can use
        NotEtcd  Unsupported  TlsFailed  MixedClusters
      ClientClosed          the client was closed
        ForkedClient          the client was made by another process, and its thread does not survive a fork
      LocalServerError      no etcd of our own can be started here

Every error carries `applied`: "no" if the request has certainly changed nothing, "maybe" if it may have
been, or may yet be, carried out. Nothing outside this module looks at gRPC codes or texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Applied = Literal["no", "maybe"]


class Code(Enum):
    """gRPC's status codes, by their numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class EtcdError(Exception):
    """Base of every error of this package. `applied` says whether the request may have taken effect."""

    applied: Applied

    def __init__(self, message: str, *, applied: Applied = "no") -> None:
        super().__init__(message)
        self.applied = applied


class Unavailable(EtcdError):
    """No endpoint could answer now."""


class DeadlineExceeded(Unavailable):
    """No answer within the time given."""


class NoLeader(Unavailable):
    """The member that answered has no leader, so it can neither write nor read consistently."""


class Compacted(EtcdError):
    """The revision asked for has been compacted; `compact_revision` is the oldest one left, 0 if unknown."""

    def __init__(self, message: str, *, applied: Applied = "no", compact_revision: int = 0) -> None:
        super().__init__(message, applied=applied)
        self.compact_revision = compact_revision


class HistoryLost(EtcdError):
    """The store's revision is lower than one already seen: its data was wiped, or restored from a backup."""


class LeaseNotFound(EtcdError):
    """The lease does not exist: it has expired or was revoked."""


class Denied(EtcdError):
    """etcd refuses this user."""


class AuthFailed(Denied):
    """The user name or the password is wrong or missing."""


class TokenExpired(Denied):
    """The authentication token is not valid (any more)."""


class PermissionDenied(Denied):
    """The user has no permission on these keys."""


class Rejected(EtcdError):
    """etcd understood the request and refuses it; sending it again does not help."""


class TooManyOps(Rejected):
    """The transaction has more compares or operations than the server allows (128 by default)."""


class RequestTooLarge(Rejected):
    """The request is larger than the server allows (1.5 MiB by default)."""


class ResponseTooLarge(Rejected):
    """The answer is larger than the client accepts: read a smaller range, or with a limit."""


class NoSpace(Rejected):
    """The server's space quota is exhausted and it accepts no writes."""


class LeaseExists(Rejected):
    """A lease with this id exists already."""


class AuthNotEnabled(Rejected):
    """The server knows no users; the client then goes on without one."""


class Unusable(EtcdError):
    """What answers at the endpoint is not an etcd that this client can use."""


class NotEtcd(Unusable):
    """Something else than etcd listens there."""


class Unsupported(Unusable):
    """The server does not offer the v3 API."""


class TlsFailed(Unusable):
    """The two sides do not agree on TLS: plain against TLS, or a certificate that is not accepted."""


class MixedClusters(Unusable):
    """The endpoints belong to different etcd clusters."""


class ClientClosed(EtcdError):
    """The client has been closed."""


class ForkedClient(ClientClosed):
    """The client belongs to the parent process."""


class LocalServerError(EtcdError):
    """The local etcd server cannot be started."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """`error` for any message that contains `text` (and has `code`, if given)."""

    text: str
    error: type[EtcdError]
    applied: Applied = "no"
    fix: str = ""
    code: Code | None = None


# The first rule that fits wins. etcd's texts are its API: several kinds share one code, and proxied or
# wrapped errors arrive as UNKNOWN with only the text left.
_RULES = (
    _Rule("invalid auth token", TokenExpired),
    _Rule("revision of auth store is old", TokenExpired),
    _Rule("user name is empty", TokenExpired),
    _Rule("authentication is not enabled", AuthNotEnabled),
    _Rule("authentication failed", AuthFailed, fix="check the user name and the password"),
    _Rule(
        "permission denied", PermissionDenied, fix="grant the user's role this key range, or use another user"
    ),
    _Rule("required revision has been compacted", Compacted),
    _Rule("lease not found", LeaseNotFound),
    _Rule("lease already exists", LeaseExists),
    _Rule("too many operations", TooManyOps, fix="split the transaction"),
    _Rule("request is too large", RequestTooLarge, fix="store less under one key"),
    _Rule("grpc: received message larger than max", RequestTooLarge, fix="store less under one key"),
    _Rule("eceived message larger than max", ResponseTooLarge, fix="read a smaller range, or with a limit"),
    _Rule("database space exceeded", NoSpace, fix="compact and defragment etcd, then disarm its alarm"),
    # Refused before the proposal: certainly not applied.
    _Rule("no leader", NoLeader, fix="check that a majority of the etcd members is up"),
    _Rule("too many requests", Unavailable),
    _Rule("proposal dropped", Unavailable),
    # Sent, and the outcome unknown.
    _Rule("not a primary lessor", Unavailable, "maybe"),
    _Rule("context deadline exceeded", Unavailable, "maybe", code=Code.UNKNOWN),
    _Rule("", DeadlineExceeded, "maybe", code=Code.DEADLINE_EXCEEDED),
    _Rule("", Unavailable, "maybe", code=Code.UNAVAILABLE),
    _Rule("", Unavailable, "maybe", code=Code.INTERNAL),
    _Rule("", Unavailable, "maybe", code=Code.UNKNOWN),
    _Rule("", Unavailable, "maybe", code=Code.CANCELLED),
    _Rule("", Unavailable, "maybe", code=Code.ABORTED),
    _Rule("", Unavailable, "maybe", code=Code.RESOURCE_EXHAUSTED),
    _Rule("", Unsupported, fix="use an etcd of version 3.4 or later", code=Code.UNIMPLEMENTED),
    _Rule("", TokenExpired, code=Code.UNAUTHENTICATED),
    _Rule("", PermissionDenied, code=Code.PERMISSION_DENIED),
    _Rule("", Rejected),
)


def from_status(code: Code, details: str, *, endpoint: str, unsent: bool = False) -> EtcdError:
    """The error for a call that ended with this status at this endpoint; `unsent`: before it began there."""
    rule = next(rule for rule in _RULES if rule.text in details and rule.code in (None, code))
    reason = _reason(code, details)
    message = f"etcd at {endpoint}: {reason}" + (f"; {rule.fix}" if rule.fix else "")
    return rule.error(message, applied="no" if unsent else rule.applied)


def from_cancel_reason(reason: str, *, endpoint: str) -> EtcdError:
    """The error for a watch that the server refused or ended with this reason.

    An expired token is reported as "PermissionDenied" by etcd 3.5.1 and as "Unauthenticated ..." by 3.4.23,
    so every denial counts as an expired token until fresh tokens were refused as well.
    """
    text = reason.lower()
    if any(word in text for word in ("permission", "auth", "user name is empty")):
        return TokenExpired(f"etcd at {endpoint} refused the watch: {reason}")
    return Unavailable(f"etcd at {endpoint} ended the watch: {reason or 'it gave no reason'}")


def _reason(code: Code, details: str) -> str:
    text = details.strip().removeprefix("etcdserver: ") or code.name.lower().replace("_", " ")
    if code is Code.DEADLINE_EXCEEDED:
        return "no answer in time"
    return " ".join(text.split())
