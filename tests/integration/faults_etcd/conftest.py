"""Nodes on etcd servers of the test's own; nothing of them may be left after it."""

from __future__ import annotations

from support.node_fixtures import no_thread_is_left, node_of, run_id

__all__ = ["no_thread_is_left", "node_of", "run_id"]
