"""Every flag of the command: its spellings, its value, its default and its help.

Pure, a table. :mod:`elastic.launcher.arguments` reads it; nothing else decides what a flag is. A flag
named ``--log-dir`` is also ``--log_dir`` and the environment variable ``PET_LOG_DIR``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from elastic.launcher import values
from elastic.multiprocessing.affinity import AffinityMode
from elastic.multiprocessing.redirects import Std
from elastic.utils.key_values import key_values

__all__ = ["DEFAULT_NEWS", "DEFAULT_SIGNALS", "FLAGS", "GROUPS", "Flag"]

DEFAULT_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
DEFAULT_NEWS = ("SIGUSR1", "SIGUSR2")

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "size": "size of the job",
        "rendezvous": "rendezvous: how the nodes find each other",
        "workers": "what a worker runs",
        "devices": "devices and CPUs",
        "failures": "failures and shutdown",
        "output": "logs and output",
        "instruments": "health, metrics and events",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag. ``convert`` takes the text that was written and raises ``ValueError`` with the reason."""

    name: str
    group: str
    help: str
    convert: Callable[[str], Any] = values.plain
    default: Any = None
    metavar: str | None = None
    short: str | None = None
    kind: Literal["value", "switch", "repeat"] = "value"

    @property
    def dest(self) -> str:
        """The name of its field in ``Options``."""
        return self.name.replace("-", "_")

    @property
    def long(self) -> str:
        """The spelling that messages use."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that stands in for it."""
        return f"PET_{self.dest.upper()}"


FLAGS: tuple[Flag, ...] = (
    Flag(
        name="nnodes",
        group="size",
        metavar="N|MIN:MAX",
        convert=values.node_range,
        default=values.NodeRange(1, 1),
        help="number of nodes, or the range the job may shrink and grow in (default: 1)",
    ),
    Flag(
        name="nproc-per-node",
        group="size",
        metavar="N|auto|cpu|gpu",
        convert=values.worker_count,
        default=1,
        help="workers on this node: a number, one for each usable CPU, one for each device, or auto: "
        "devices if there are any, else CPUs (default: 1)",
    ),
    Flag(
        name="standalone",
        group="rendezvous",
        kind="switch",
        convert=values.switch,
        default=False,
        help="one node that brings its own rendezvous, on a free port of the loopback: an etcd, or a store "
        "where there is no etcd program; what a single node without --rdzv-endpoint does anyway",
    ),
    Flag(
        name="rdzv-endpoint",
        group="rendezvous",
        metavar="HOST:PORT[,HOST:PORT]",
        default="",
        help="where the backend is found. etcd (port 2379): its members, with commas; also [::1]:2379, "
        "etcd://HOST, https://HOST. c10d, p10d, tcp (port 29400): the node that is to keep the store. "
        "static (port 29500): node rank 0, instead of --master-addr and --master-port. file: a path that "
        "all nodes share",
    ),
    Flag(
        name="rdzv-id",
        group="rendezvous",
        metavar="ID",
        convert=values.run_id,
        default="none",
        help="name of the job, the same on every node; a single node may leave it out and gets a new one; "
        "static nodes need none",
    ),
    Flag(
        name="rdzv-backend",
        group="rendezvous",
        metavar="NAME",
        convert=values.backend,
        help="how the membership is agreed on: etcd; c10d, p10d or tcp, a store in one of the agents; file, "
        "a file that all nodes share; static, fixed node ranks (default: etcd, or static if --master-addr, "
        "--master-port or --node-rank ask for it)",
    ),
    Flag(
        name="rdzv-conf",
        group="rendezvous",
        metavar="KEY=VALUE[,...]",
        kind="repeat",
        convert=key_values,
        default=MappingProxyType({}),
        help="settings of the backend, such as join_timeout, last_call_timeout or ttl; may be repeated",
    ),
    Flag(
        name="rdzv-timeout",
        group="rendezvous",
        metavar="SECONDS",
        convert=values.seconds(zero=False),
        help="how long to wait for enough nodes; the same as --rdzv-conf join_timeout=SECONDS",
    ),
    Flag(
        name="local-addr",
        group="rendezvous",
        metavar="ADDRESS",
        help="address of this node that the others reach (default: the one from which it reaches the "
        "rendezvous)",
    ),
    Flag(
        name="node-rank",
        group="rendezvous",
        metavar="RANK",
        convert=values.nonnegative,
        default=0,
        help="static only: the rank of this node, which it keeps (default: 0)",
    ),
    Flag(
        name="master-addr",
        group="rendezvous",
        metavar="HOST",
        convert=values.host,
        help="static only: the address of node rank 0, where all nodes meet (default for one node: "
        "127.0.0.1)",
    ),
    Flag(
        name="master-port",
        group="rendezvous",
        metavar="PORT",
        convert=values.port,
        help="static only: the port of --master-addr where first all nodes meet and then their workers do "
        "(default, and 0: the nodes meet at 29500, and the workers at a free port)",
    ),
    Flag(
        name="module",
        short="-m",
        group="workers",
        kind="switch",
        convert=values.switch,
        default=False,
        help="SCRIPT is a module, run as python -m does",
    ),
    Flag(
        name="no-python",
        group="workers",
        kind="switch",
        convert=values.switch,
        default=False,
        help="SCRIPT is a program, run without python",
    ),
    Flag(
        name="run-path",
        group="workers",
        kind="switch",
        convert=values.switch,
        default=False,
        help="run SCRIPT by runpy.run_path, with the module search path of this directory",
    ),
    Flag(
        name="role",
        group="workers",
        metavar="NAME",
        default="default",
        help="role of this node's workers (default: default)",
    ),
    Flag(
        name="start-method",
        group="workers",
        metavar="METHOD",
        convert=values.choice("spawn", "fork", "forkserver"),
        default="spawn",
        help="how workers that are Python functions are started: spawn, fork or forkserver (default: spawn)",
    ),
    Flag(
        name="devices",
        group="devices",
        metavar="LIST",
        convert=values.device_list,
        help="devices of this node that this agent uses, counted among those it sees: 0-3, or 0,2,GPU-<uuid>",
    ),
    Flag(
        name="devices-per-rank",
        group="devices",
        metavar="N",
        convert=values.positive,
        help="give each worker its own N devices and hide the others from it",
    ),
    Flag(
        name="device-variable",
        group="devices",
        metavar="NAME",
        convert=values.environment_name,
        default="CUDA_VISIBLE_DEVICES",
        help="environment variable that tells workers their devices (default: CUDA_VISIBLE_DEVICES)",
    ),
    Flag(
        name="numa-binding",
        group="devices",
        metavar="MODE",
        convert=values.choice(*(mode.value for mode in AffinityMode)),
        help="bind each worker to CPUs near its device, or to an equal part of the node without devices: "
        "node, socket, exclusive (cores of its own) or core-complex (a shared cache); if that is not "
        "possible, workers run unbound (default: no binding)",
    ),
    Flag(
        name="virtual-local-rank",
        group="devices",
        kind="switch",
        convert=values.switch,
        default=False,
        help="each worker sees its own devices only (one, without --devices-per-rank) and LOCAL_RANK=0",
    ),
    Flag(
        name="max-restarts",
        group="failures",
        metavar="N",
        convert=values.nonnegative,
        default=0,
        help="how many failures of workers the job survives (default: 0)",
    ),
    Flag(
        name="monitor-interval",
        group="failures",
        metavar="SECONDS",
        convert=values.seconds(zero=False),
        default=0.1,
        help="longest time between two looks at the workers; their end is noticed at once (default: 0.1)",
    ),
    Flag(
        name="shutdown-timeout",
        group="failures",
        metavar="SECONDS",
        convert=values.seconds(zero=True),
        help="how long workers may take to end before they are killed (default: "
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30)",
    ),
    Flag(
        name="signals-to-handle",
        group="failures",
        metavar="NAMES",
        convert=values.comma_list,
        default=DEFAULT_SIGNALS,
        help="signals on which this node stops its workers and leaves (default: "
        f"{','.join(DEFAULT_SIGNALS)})",
    ),
    Flag(
        name="signals-to-pass-on",
        group="failures",
        metavar="NAMES",
        convert=values.words_or_none,
        default=DEFAULT_NEWS,
        help="signals that are news for the workers of this node: those that have a handler get them, and "
        f"nothing stops; or none (default: {','.join(DEFAULT_NEWS)})",
    ),
    Flag(
        name="restart-backoff",
        group="failures",
        metavar="SECONDS",
        convert=values.seconds(zero=True),
        default=1.0,
        help="pause before the second restart in a row of workers that fail within a minute, doubled for "
        "each further one up to 30; the first restart is immediate (default: 1; 0: no pause)",
    ),
    Flag(
        name="max-same-failures",
        group="failures",
        metavar="N",
        convert=values.nonnegative,
        default=5,
        help="end the job, whatever --max-restarts allows, when a node's workers fail N times in a row in "
        "the same way and within a minute (default: 5; 0: never)",
    ),
    Flag(
        name="exit-barrier-timeout",
        group="failures",
        metavar="SECONDS",
        convert=values.seconds(zero=True),
        default=300.0,
        help="how long this node, when its workers are done, waits for the other nodes; it ends at once when "
        "they are done or gone (default: 300)",
    ),
    Flag(
        name="finish-timeout",
        group="failures",
        metavar="SECONDS",
        convert=values.seconds(zero=True),
        default=0.0,
        help="workers that still run so long after the first of their node has ended well count as failed "
        "(default: 0, never; they are named after a minute)",
    ),
    Flag(
        name="notice-timeout",
        group="failures",
        metavar="SECONDS",
        convert=values.seconds(zero=True),
        default=0.0,
        help="how long workers may take to save and to acknowledge before they are stopped because nodes "
        "wait to be let in, or leave; see elastic.worker (default: 0, they are not told)",
    ),
    Flag(
        name="notice-signal",
        group="failures",
        metavar="NAME",
        help="signal that workers get with such a notice, if they have a handler for it (default: none)",
    ),
    Flag(
        name="log-dir",
        group="output",
        metavar="DIR",
        help="directory for the workers' logs and error files (default: a new temporary one)",
    ),
    Flag(
        name="redirects",
        short="-r",
        group="output",
        metavar="STD",
        convert=Std.from_str,
        default=Std.NONE,
        help="send streams of workers to files: 0 none, 1 stdout, 2 stderr, 3 both, "
        "or by local rank, 0:1,1:3 (default: 0)",
    ),
    Flag(
        name="tee",
        short="-t",
        group="output",
        metavar="STD",
        convert=Std.from_str,
        default=Std.NONE,
        help="send streams of workers to files and to the console; written as --redirects (default: 0)",
    ),
    Flag(
        name="local-ranks-filter",
        group="output",
        metavar="RANKS",
        convert=values.ranks,
        help="local ranks whose output the console shows, as in 0,1 or 0-3 (default: all)",
    ),
    Flag(
        name="ranks-filter",
        group="output",
        metavar="RANKS",
        convert=values.ranks,
        help="the same by rank in the whole job; with both filters, workers that pass both",
    ),
    Flag(
        name="log-line-prefix-template",
        group="output",
        metavar="TEXT",
        convert=values.prefix_template,
        help="what teed lines begin with on the console, with ${role_name}, ${rank}, ${local_rank}, "
        "${node_rank}, ${round} and ${hostname} (default: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else "
        "[${role_name}${local_rank}]:)",
    ),
    Flag(
        name="log-max-size",
        group="output",
        metavar="SIZE",
        convert=values.size,
        help="start a fresh log when one has so many bytes, as in 100M; redirected output then goes through "
        "the launcher, as with --tee (default: no limit)",
    ),
    Flag(
        name="log-keep",
        group="output",
        metavar="N",
        convert=values.positive,
        default=5,
        help="how many full logs are kept, as stdout.log.1 (the newest) and so on (default: 5)",
    ),
    Flag(
        name="logs-specs",
        group="output",
        metavar="NAME",
        help="who decides where output goes: an entry point of the group elastic.logs_specs "
        "(default: default)",
    ),
    Flag(
        name="dump-stacks",
        group="output",
        kind="switch",
        convert=values.switch,
        default=False,
        help="before workers are stopped, keep the stacks of their threads beside their logs: of functions, "
        "of scripts that use record or register_stack_dump() of elastic.multiprocessing, and of others if "
        "py-spy is installed; takes up to half a second, with py-spy up to 5",
    ),
    Flag(
        name="duplicate-stdout-filters",
        group="output",
        metavar="STRINGS",
        convert=values.filters,
        default=(),
        help="also collect the lines of stdout that hold one of these strings in a file of their own; "
        "two commas write one",
    ),
    Flag(
        name="duplicate-stderr-filters",
        group="output",
        metavar="STRINGS",
        convert=values.filters,
        default=(),
        help="the same for stderr",
    ),
    Flag(
        name="event-log-handler",
        group="instruments",
        metavar="NAME",
        default="null",
        help="where events of the job go: console, file:PATH, otel, or what a plug-in brings (default: null, "
        "nowhere)",
    ),
    Flag(
        name="metrics-port",
        group="instruments",
        metavar="PORT",
        convert=values.port,
        help="let Prometheus read this agent's metrics on that port; 0: any free one (default: off)",
    ),
    Flag(
        name="metrics-host",
        group="instruments",
        metavar="ADDRESS",
        convert=values.host,
        default="127.0.0.1",
        help="the address for that; there is no access control (default: 127.0.0.1)",
    ),
    Flag(
        name="health-port",
        group="instruments",
        metavar="PORT",
        convert=values.port,
        help="answer GET /healthz (the agent works) and /readyz (its workers run) on that port; 0: any free "
        "one (default: TORCHELASTIC_HEALTH_CHECK_PORT, else off)",
    ),
    Flag(
        name="health-host",
        group="instruments",
        metavar="ADDRESS",
        convert=values.host,
        default="127.0.0.1",
        help="the address for that (default: 127.0.0.1)",
    ),
    Flag(
        name="node-check",
        group="instruments",
        metavar="COMMAND",
        help="a command that is run before this node joins: exit code 0 says that the node is good, 1 that "
        "it is bad and must not join; anything else is trouble of the check, and the node joins "
        "(default: none)",
    ),
    Flag(
        name="node-check-timeout",
        group="instruments",
        metavar="SECONDS",
        convert=values.seconds(zero=False),
        default=60.0,
        help="how long the check may take (default: 60)",
    ),
    Flag(
        name="first-report-timeout",
        group="instruments",
        metavar="SECONDS",
        convert=values.seconds(zero=True),
        default=0.0,
        help="a worker that has reported nothing by then counts as failed; see elastic.worker (default: 0, "
        "it need not report)",
    ),
    Flag(
        name="silence-timeout",
        group="instruments",
        metavar="SECONDS",
        convert=values.seconds(zero=True),
        default=0.0,
        help="a worker that has reported, and then reports nothing for so long, counts as failed (default: "
        "0, never)",
    ),
    Flag(
        name="no-stragglers",
        group="instruments",
        kind="switch",
        convert=values.switch,
        default=False,
        help="do not compare the workers that report their steps to name those that are slow",
    ),
)
