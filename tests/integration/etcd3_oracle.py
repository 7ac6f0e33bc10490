"""The released etcd3 client as a program: it carries out commands, so that a test may compare.

It must run in a process of its own, with PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python: its generated
code cannot be loaded by the protobuf that the project uses. Every line of input is a command, a JSON list
of a name and its arguments, and is answered by one line of JSON. Bytes are text of Latin-1 in both.

    python etcd3_oracle.py HOST PORT
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import etcd3

Answer = dict[str, Any] | list[dict[str, Any]] | bool | int


def record(value: bytes, meta: Any) -> dict[str, Any]:
    return {
        "key": meta.key.decode("latin-1"),
        "value": value.decode("latin-1"),
        "version": meta.version,
        "create_revision": meta.create_revision,
        "mod_revision": meta.mod_revision,
        "lease": meta.lease_id,
    }


class Oracle:
    """One method a command."""

    def __init__(self, host: str, port: int) -> None:
        self._client = etcd3.client(host=host, port=port, timeout=10)

    def get_prefix(self, prefix: str) -> Answer:
        found = self._client.get_prefix(prefix.encode("latin-1"), sort_order="ascend", sort_target="key")
        return [record(value, meta) for value, meta in found]

    def put(self, key: str, value: str, lease: int = 0) -> Answer:
        response = self._client.put(key.encode("latin-1"), value.encode("latin-1"), lease=lease or None)
        return int(response.header.revision)

    def delete(self, key: str) -> Answer:
        return bool(self._client.delete(key.encode("latin-1")))

    def put_all_if_created_at(self, key: str, revision: int, values: dict[str, str]) -> Answer:
        """In one transaction: if `key` was created at `revision` (0: is absent), put all of these."""
        operations = self._client.transactions
        succeeded, _ = self._client.transaction(
            compare=[operations.create(key.encode("latin-1")) == revision],
            success=[operations.put(k.encode("latin-1"), v.encode("latin-1")) for k, v in values.items()],
            failure=[],
        )
        return bool(succeeded)

    def lease(self, ttl: int) -> Answer:
        return int(self._client.lease(ttl).id)

    def lease_info(self, lease: int) -> Answer:
        info = self._client.get_lease_info(lease)
        keys = sorted(key.decode("latin-1") for key in info.keys)
        return {"granted": info.grantedTTL, "remaining": info.TTL, "keys": keys}

    def revoke(self, lease: int) -> Answer:
        self._client.revoke_lease(lease)
        return True

    def watch_prefix(self, prefix: str, revision: int, count: int) -> Answer:
        """The next `count` events under the prefix, from that revision on."""
        events, cancel = self._client.watch_prefix(prefix.encode("latin-1"), start_revision=revision)
        try:
            return [
                {
                    "kind": type(event).__name__,
                    "key": event.key.decode("latin-1"),
                    "value": event.value.decode("latin-1"),
                }
                for event in itertools.islice(events, count)
            ]
        finally:
            cancel()


def main() -> None:
    oracle = Oracle(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        command: Callable[..., Answer] = getattr(oracle, name)
        print(json.dumps(command(*arguments)), flush=True)


if __name__ == "__main__":
    main()
