"""Why a rendezvous waits, in words: who came, how many are missing, and what it waits for.

Used when a rendezvous times out, and by the operator's command.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .records import Node, Round, Want
from .view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The nodes by what they do, and one sentence that says why there is no newer world, or that there is."""

    joined: tuple[str, ...]
    stopping: tuple[str, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    spares: tuple[str, ...]
    missing: int
    why: str

    def __str__(self) -> str:
        lists = {
            "joined": self.joined,
            "stopping": self.stopping,
            "running": self.running,
            "waiting": self.waiting,
            "spare": self.spares,
        }
        told = [f"{what}: {', '.join(names)}" for what, names in lists.items() if names]
        return "; ".join([self.why, *told])


def report(view: View, *, min_nodes: int, max_nodes: int) -> Report:
    """The report on a view that holds all node records."""
    nodes = [seen.record for seen in view.nodes.values()]
    seen = view.round
    number = 1 if seen is None else seen.record.round
    open_now = seen is None or not seen.record.formed
    joined = _names(n for n in nodes if n.want is Want.JOINING and (not open_now or n.round == number))
    stopping = _names(n for n in nodes if n.want is Want.STOPPING)
    running = _names(n for n in nodes if n.want is Want.ACTIVE)
    entered = _names(n for n in nodes if n.want in (Want.ACTIVE, Want.DONE))
    waiting = _names(n for n in nodes if n.want is Want.WAITING)
    spares = _names(n for n in nodes if n.want is Want.SPARE)
    missing = max(0, min_nodes - len(joined)) if open_now else 0
    if view.closed is not None:
        terminal = view.closed.record
        why = f"the job has ended ({terminal.outcome.value.lower()}): {terminal.reason}"
    elif not nodes:
        why = "no agent is here" if seen is None else f"no agent is left; the last round was {number}"
    elif seen is not None and seen.record.formed:
        why = f"round {number} runs with {len(seen.record.world)} nodes"
        leaving = _names(n for n in nodes if n.draining)
        why += f"; to leave once workers have saved: {', '.join(leaving)}" if leaving else ""
        done = _done(seen.record, view)
        why += f"; done, so that nobody else is let in: {', '.join(done)}" if done else ""
    elif view.leader is None:
        why = "no node leads: the last leader's lease has just ended"
    elif stopping or (entered and joined):
        slow = ", ".join(stopping or entered)
        why = f"round {number} waits for {slow} to stop the workers of the round before"
    elif missing:
        why = f"round {number} has {len(joined)} of at least {min_nodes} nodes: {missing} missing"
    else:
        why = f"round {number} has {len(joined)} nodes and waits a moment for more, up to {max_nodes}"
    return Report(
        joined=joined,
        stopping=stopping,
        running=running,
        waiting=waiting,
        spares=spares,
        missing=missing,
        why=why,
    )


def _done(committed: Round, view: View) -> tuple[str, ...]:
    """The members of a formed world whose workers have succeeded, gone or not."""
    done = {i for i, seen in view.nodes.items() if seen.record.want is Want.DONE}
    done |= committed.finished_ids
    return tuple(member.name for member in committed.world if member.node_id in done)


def _names(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)
