"""What a node is called. Its id is the name that its user gave it and what tells its lives apart.

Pure. Whoever needs the id of a node, or the name in one, comes here.
"""

from __future__ import annotations

import re

_LIFE = re.compile(r"-[0-9a-f]{8}$")


def node_id_of(name: str, *, life: int) -> str:
    """The id of a node in one of its lives; `life` is a random number, of which 32 bits count."""
    return f"{name}-{life & 0xFFFFFFFF:08x}"


def name_of(node_id: str) -> str:
    """The name of a node, which is the same in all its lives if its user gave it one."""
    return _LIFE.sub("", node_id)
