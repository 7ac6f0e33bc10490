"""Who is in the world, for a rendezvous that does not say.

A handler that has only the field's common interface gives ranks and a store. Each agent then tells
the others about itself through that store, which must be of this round alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from elastic.rendezvous import Member, RendezvousInfo


def with_participants(info: RendezvousInfo, me: Member) -> RendezvousInfo:
    """`info` with its participants in it. Blocks until every member has told, or for the store's timeout."""
    if info.participants:
        return info
    key = "elastic/participants/{}".format
    info.store.set(key(info.rank), json.dumps(asdict(me)))
    told = [json.loads(info.store.get(key(rank))) for rank in range(info.world_size)]
    return replace(info, participants=tuple(Member(**fields) for fields in told))
