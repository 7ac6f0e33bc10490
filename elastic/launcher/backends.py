"""Where the nodes of a job meet: which backend, and at which endpoint.

Pure. What a backend's endpoint looks like is known here for the backends of this package; another
package's backend gets its endpoint as it was written. Nothing is resolved or opened.
"""

from collections.abc import Collection, Mapping
from typing import Any

from elastic.launcher import values
from elastic.launcher.errors import UsageError
from elastic.launcher.values import NodeRange
from elastic.utils.endpoints import Endpoint, host_and_port, parse_endpoints

__all__ = [
    "STATIC_FLAGS",
    "brings_its_own",
    "check",
    "endpoints",
    "place",
    "settle",
    "static_endpoint",
]

PORTS: Mapping[str, int] = {"etcd": 2379, "c10d": 29400, "p10d": 29400, "tcp": 29400, "static": 29500}
"""Where a port is not written, by backend."""

STORES = frozenset({"c10d", "p10d", "tcp"})
"""The backends over a key/value store that one of the agents keeps."""

STATIC_FLAGS = ("node_rank", "master_addr", "master_port")

_FREE_PORT = ":0"  # at the end of an endpoint, as torchrun's users write it for a single node


def settle(options: dict[str, Any], given: Collection[str]) -> list[str]:
    """Fill in the backend of a command line, and refuse what contradicts itself; returns warnings.

    `given` are the fields that a flag or a variable has set.
    """
    static = [name for name in STATIC_FLAGS if name in given]
    if options["standalone"]:
        _check_standalone(options)
    if options["rdzv_backend"] is None:
        many = options["nnodes"].maximum > 1
        asked = bool(options["master_port"]) or (many and bool(static))
        free = not (options["standalone"] or options["rdzv_endpoint"])
        options["rdzv_backend"] = "static" if asked and free else "etcd"
    backend, endpoint = options["rdzv_backend"], options["rdzv_endpoint"]
    if backend == "static":
        unused = [name for name in static if name != "node_rank" and endpoint]
        why = f"as --rdzv-endpoint={endpoint} says where node rank 0 is"
    else:
        unused, why = static, f"as --rdzv-backend={backend} gives out the ranks and the master itself"
    return [f"not used, {why}: {', '.join(map(_flag, unused))}"] if unused else []


def _check_standalone(options: dict[str, Any]) -> None:
    if options["rdzv_endpoint"].endswith(_FREE_PORT):
        options["rdzv_endpoint"] = ""  # a free port of this machine: that is what it means
    if options["rdzv_endpoint"]:
        raise UsageError(
            f"--standalone brings its own rendezvous, and --rdzv-endpoint={options['rdzv_endpoint']} names "
            "another; drop one of them"
        )
    if options["nnodes"].maximum > 1:
        raise UsageError(
            f"--standalone is for one node, and --nnodes={options['nnodes']} asks for more; drop "
            "--standalone and give --rdzv-endpoint=HOST:PORT of an etcd that all nodes reach"
        )
    if options["rdzv_backend"] not in (None, "etcd", "static", *STORES):
        raise UsageError(
            f"--standalone brings an etcd or a store of its own, and "
            f"--rdzv-backend={options['rdzv_backend']} uses neither; drop one of them"
        )


def brings_its_own(backend: str, endpoint: str, *, max_nodes: int) -> bool:
    """Whether a single node is to start what its rendezvous needs: nobody said where that is."""
    if backend in STORES:
        return max_nodes == 1 and (not endpoint or endpoint.endswith(_FREE_PORT))
    return backend == "etcd" and max_nodes == 1 and not endpoint


def static_endpoint(master_addr: str | None, master_port: int | None, *, alone: bool) -> str:
    """The endpoint of the backend `static`, without a port where the user chose none; "" where there is none.

    A node that is `alone` may leave its own address out.
    """
    host = master_addr or ("127.0.0.1" if master_port and alone else "")
    if not host or not master_port:
        return host
    return host_and_port(host, master_port)


def place(backend: str) -> str:
    """What a job needs as its endpoint, and how to give it."""
    if backend == "static":
        return "node rank 0 to meet at; give --master-addr=HOST (master_addr), the same on every node"
    if backend in STORES:
        return "a node that keeps their store; give --rdzv-endpoint=HOST:PORT (rdzv_endpoint)"
    if backend == "file":
        return "a file that all nodes share; give --rdzv-endpoint=/PATH (rdzv_endpoint)"
    what = "an etcd" if backend == "etcd" else "a place"
    return f"{what} that all of them reach; give --rdzv-endpoint=HOST:PORT (rdzv_endpoint)"


def endpoints(backend: str, text: str, *, settings: Mapping[str, Any]) -> tuple[Endpoint, ...]:
    """The hosts and ports of an endpoint that somebody else serves; none where it is no such thing.

    :raises ValueError: one sentence on what is wrong with it.
    """
    if not text or backend not in PORTS or settings.get("store_type") == "file":
        return ()
    if backend != "etcd" and "://" in text:
        raise ValueError(f"endpoint {text!r} has a scheme, and --rdzv-backend={backend} takes none: drop it")
    found = parse_endpoints(text, default_port=PORTS[backend])
    if backend != "etcd" and len(found) > 1:
        raise ValueError(
            f"{text!r} names {len(found)} hosts, and with --rdzv-backend={backend} all nodes meet at one: "
            "name that one"
        )
    return found


def check(
    backend: str,
    endpoint: str,
    *,
    nodes: NodeRange,
    node_rank: int,
    has_run_id: bool,
    settings: Mapping[str, Any],
) -> None:
    """Refuse what a backend cannot be asked for.

    :param endpoint: what the user wrote; for `static` also what :func:`static_endpoint` made of it.
    :raises UsageError: one sentence, for the first thing that is wrong.
    """
    try:
        values.backend(backend)
    except ValueError as error:
        raise UsageError(f"rdzv_backend={backend}: {error}") from None
    if not endpoint and (nodes.maximum > 1 or backend == "file"):
        size = f"a job of up to {nodes.maximum} nodes" if nodes.maximum > 1 else f"--rdzv-backend={backend}"
        raise UsageError(f"{size} needs {place(backend)}")
    if nodes.maximum > 1 and not has_run_id and backend != "static":
        raise UsageError(
            f"a job of up to {nodes.maximum} nodes needs a name by which they find each other; "
            "give --rdzv-id=NAME (run_id), the same on every node"
        )
    if backend == "static" and nodes.minimum != nodes.maximum:
        raise UsageError(
            f"--rdzv-backend=static has a fixed membership, and --nnodes={nodes} is a range; "
            "give one number, or a backend with a changing membership, such as etcd"
        )
    if backend == "static" and not 0 <= node_rank < nodes.maximum:
        raise UsageError(
            f"--node-rank={node_rank} (node_rank) is outside a job of {nodes.maximum} nodes, whose "
            "ranks begin at 0; give each node a rank of its own"
        )
    if brings_its_own(backend, endpoint, max_nodes=nodes.maximum):
        return
    try:
        endpoints(backend, endpoint, settings=settings)
    except ValueError as error:
        raise UsageError(f"--rdzv-endpoint: {error}") from None


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"
