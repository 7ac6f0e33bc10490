"""The program of `NodeProcess`: one following node. Tells its worlds and its end, a line of JSON each.

Arguments: endpoint, run id, nnodes, settings as JSON. It leaves when its standard input ends.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading

from support.nodes import Node, ids


def _tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def _report(node: Node) -> None:
    for number in itertools.count(1):
        with node.changed:
            while len(node.worlds) < number and node.ended is None:
                node.changed.wait()
        if len(node.worlds) < number:
            break
        world = node.worlds[number - 1]
        _tell(id=node.id, world_size=world.world_size, rank=world.rank, round=world.round, ids=ids(world))
    _tell(ended=True, error=str(node.error or ""))


def main(arguments: list[str]) -> int:
    endpoint, run_id, nnodes, conf = arguments
    node = Node(endpoint, run_id, nnodes, **json.loads(conf)).follow()
    reporter = threading.Thread(target=_report, args=[node])
    reporter.start()
    sys.stdin.read()
    node.close()
    reporter.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
