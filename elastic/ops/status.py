"""The state of a run, for people and for programs. Pure: made from one read of its records."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from elastic.rendezvous.core.records import Node, Round, Want
from elastic.rendezvous.core.report import report
from elastic.rendezvous.core.view import View


def status(run_id: str, view: View) -> dict[str, Any]:
    """What is known of a run, as plain data. The names are stable: programs may rely on them."""
    seen = view.round
    committed = None if seen is None else seen.record
    nodes = [s.record for s in view.nodes.values()]
    found = report(
        view,
        min_nodes=1 if committed is None else committed.min_nodes,
        max_nodes=1 if committed is None else committed.max_nodes,
    )
    terminal = None if view.closed is None else view.closed.record
    return {
        "run_id": run_id,
        "incarnation": None if committed is None else committed.incarnation,
        "round": None if committed is None else committed.round,
        "phase": None if committed is None else committed.phase.value,
        "cause": None if committed is None else committed.cause,
        "min_nodes": None if committed is None else committed.min_nodes,
        "max_nodes": None if committed is None else committed.max_nodes,
        "world_size": 0 if committed is None else sum(m.local_world_size for m in committed.world),
        "master": f"{committed.master_addr}:{committed.master_port}"
        if committed and committed.formed
        else None,
        "failures": None if committed is None else committed.failures,
        "leader": None if view.leader is None else view.leader.record.node_id,
        "missing": found.missing,
        "outcome": None if terminal is None else terminal.outcome.value,
        "exit_code": None if terminal is None else terminal.exit_code,
        "why": found.why,
        "nodes": [_node(node, committed) for node in sorted(nodes, key=lambda n: _order(n, committed))],
    }


def _order(node: Node, committed: Round | None) -> tuple[bool, int]:
    """Members by rank, then the rest in order of arrival."""
    rank = None if committed is None else committed.rank_of(node.node_id)
    return (rank is None, rank or 0)


def _node(node: Node, committed: Round | None) -> dict[str, Any]:
    formed = committed is not None and committed.formed and node.want in (Want.ACTIVE, Want.DONE)
    return {
        "node_id": node.node_id,
        "name": node.name,
        "rank": committed.rank_of(node.node_id) if committed is not None and formed else None,
        "state": node.want.value,
        "round": node.round,
        "address": node.address,
        "hostname": node.hostname,
        "pid": node.pid,
        "local_world_size": node.local_world_size,
        "role": node.role,
        "cause": node.cause,
    }


def as_text(found: dict[str, Any]) -> str:
    """The same for people."""
    round_text = "none yet"
    if found["round"] is not None:
        round_text = f"{found['round']}, {found['phase'].lower()} ({found['cause']})"
    head = [
        ("run", found["run_id"]),
        ("round", round_text),
        ("nodes", f"{found['min_nodes']} to {found['max_nodes']}" if found["round"] is not None else None),
        ("workers", found["world_size"] or None),
        ("master", found["master"]),
        ("failures", found["failures"]),
        ("now", found["why"]),
    ]
    columns = {
        "RANK": "rank",
        "NODE": "name",
        "STATE": "state",
        "ROUND": "round",
        "ADDRESS": "address",
        "HOST": "hostname",
        "PID": "pid",
        "WORKERS": "local_world_size",
        "ROLE": "role",
    }
    rows = [["-" if node[key] is None else node[key] for key in columns.values()] for node in found["nodes"]]
    text = tabulate([row for row in head if row[1] is not None], tablefmt="plain", disable_numparse=True)
    if rows:
        text += "\n\n" + tabulate(rows, headers=list(columns), tablefmt="plain", disable_numparse=True)
    return text
