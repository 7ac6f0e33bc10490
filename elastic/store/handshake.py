"""How a client and a server of a TCPStore prove to each other that they know the same secret.

The server says its instance, its limit and a random challenge; the client answers with its id, a challenge
of its own, and an HMAC over all of it; the server answers with another HMAC. The secret never travels, and
an answer fits one challenge only. Without a secret the same is said with an empty one.

It keeps strangers out. It does not hide or sign what is said afterwards: on a network where others can
read or change packets, tunnel the connection.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path

from .messages import LENGTH, VERSION, Garbled, checked_version

LONGEST = 512  # bytes of any message of the handshake
_ID = 16
_CHALLENGE = 32
_PROOF = 32
_HELLO, _CLAIM, _WELCOME, _REFUSAL = 101, 102, 103, 104


class Unproven(Exception):
    """The other side does not know the secret."""


def new_id() -> bytes:
    """A random id, of a client or a server's instance."""
    return secrets.token_bytes(_ID)


def new_challenge() -> bytes:
    """A challenge that was never used before."""
    return secrets.token_bytes(_CHALLENGE)


def secret_of(secret: str | bytes | None, secret_file: str | Path | None) -> bytes:
    """The secret, given as a value or as a file's content without the line break at its end.

    Empty where neither is given. ValueError where both are, or where it is empty, or for an unreadable file.
    """
    if secret is not None and secret_file is not None:
        raise ValueError("a secret and a secret_file are given: give one of them")
    if secret_file is not None:
        try:
            found = Path(secret_file).read_bytes().rstrip(b"\r\n")
        except OSError as e:
            raise ValueError(f"the secret_file cannot be read: {e}") from e
        if not found:
            raise ValueError(f"the secret_file {str(secret_file)!r} is empty: write the secret into it")
        return found
    if secret is None:
        return b""
    if not secret:
        raise ValueError("the secret is empty: give one, or None for a store that is open to everybody")
    return secret.encode() if isinstance(secret, str) else secret


@dataclass(frozen=True, slots=True)
class Hello:
    """What a server says to whoever connects: which one it is, and how many bytes it takes in one frame."""

    instance: bytes
    challenge: bytes
    frame: int

    def body(self) -> bytes:
        frame = self.frame.to_bytes(LENGTH, "big")
        return bytes((VERSION, _HELLO)) + self.instance + self.challenge + frame


@dataclass(frozen=True, slots=True)
class Claim:
    """Who a client says it is, and its own challenge."""

    client: bytes
    challenge: bytes

    def body(self, secret: bytes, hello: Hello) -> bytes:
        proof = _proof(secret, b"client", hello, self)
        return bytes((VERSION, _CLAIM)) + self.client + self.challenge + proof


def read_hello(body: bytes) -> Hello:
    """Garbled for anything else."""
    checked_version(body)
    rest = _rest(body, _HELLO, _ID + _CHALLENGE + LENGTH)
    return Hello(rest[:_ID], rest[_ID:-LENGTH], int.from_bytes(rest[-LENGTH:], "big"))


def read_claim(body: bytes, secret: bytes, hello: Hello) -> Claim:
    """A claim that is proven for this hello; Unproven or Garbled for any other."""
    checked_version(body)
    rest = _rest(body, _CLAIM, _ID + _CHALLENGE + _PROOF)
    claim = Claim(rest[:_ID], rest[_ID : _ID + _CHALLENGE])
    if not hmac.compare_digest(rest[-_PROOF:], _proof(secret, b"client", hello, claim)):
        raise Unproven("the client has another secret than this store, or none")
    return claim


def welcome(secret: bytes, hello: Hello, claim: Claim) -> bytes:
    """The server's own proof."""
    return bytes((VERSION, _WELCOME)) + _proof(secret, b"server", hello, claim)


def refusal(reason: str) -> bytes:
    """A refusal, with a reason that may be told to strangers."""
    return bytes((VERSION, _REFUSAL)) + reason.encode()[: LONGEST - 2]


def check_welcome(body: bytes, secret: bytes, hello: Hello, claim: Claim) -> None:
    """Unproven where the server refuses the client or does not know the secret; Garbled for anything else."""
    checked_version(body)
    if body[1:2] == bytes((_REFUSAL,)):
        raise Unproven(body[2:].decode(errors="replace"))
    if not hmac.compare_digest(_rest(body, _WELCOME, _PROOF), _proof(secret, b"server", hello, claim)):
        raise Unproven("the server does not know the secret")


def _rest(body: bytes, kind: int, length: int) -> bytes:
    if body[1:2] != bytes((kind,)) or len(body) != 2 + length:
        raise Garbled("this is not the handshake of a store")
    return body[2:]


def _proof(secret: bytes, side: bytes, hello: Hello, claim: Claim) -> bytes:
    parts = (side, hello.instance, hello.challenge, claim.client, claim.challenge)
    text = b"elastic store %d " % VERSION + hello.frame.to_bytes(LENGTH, "big")
    text += b"".join(len(part).to_bytes(1, "big") + part for part in parts)
    return hmac.new(secret, text, hashlib.sha256).digest()
