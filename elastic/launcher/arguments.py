"""The command line and its environment variables as one value.

Pure: :func:`parse` is a function of the arguments and a mapping; it opens no file, resolves no name
and prints nothing. What must be looked up (devices, CPUs, whether the script exists) is looked up by
the caller.

Where a value comes from, first match wins: the flag, its ``PET_*`` variable, the default. An empty
variable counts as not set, as a template that was not filled in leaves it.
"""

import argparse
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from elastic.launcher import backends
from elastic.launcher.errors import UsageError
from elastic.launcher.flags import FLAGS, GROUPS, Flag
from elastic.launcher.values import NodeRange
from elastic.multiprocessing.redirects import Std
from elastic.utils.key_values import merged

__all__ = ["HelpRequested", "Options", "VersionRequested", "help_text", "parse"]

_PROGRAM = "elasticrun"
_PREFIX = "PET_"
_NO_RUN_ID = "none"

_DESCRIPTION = """\
Run a training script on one machine or many. Nodes may come and go within --nnodes; the workers of
every node are started again whenever the membership changes. Command lines of torchrun work as they are,
with --rdzv-backend=c10d, with --node-rank and --master-addr, and with --standalone.

  elasticrun --nproc-per-node=4 train.py --lr 0.1
  elasticrun --nnodes=2:8 --nproc-per-node=gpu --rdzv-endpoint=etcd1:2379,etcd2:2379,etcd3:2379 \\
             --rdzv-id=job7 --max-restarts=3 train.py --lr 0.1
"""

_EPILOG = """\
Each flag may be written with underscores, and may be set by an environment variable: PET_NNODES for
--nnodes, PET_LOG_DIR for --log-dir. The flag wins.

exit codes: 0 success; 2 wrong usage; the first failed worker's own code; 128+N for signal N;
69 rendezvous not usable; 70 fault of the launcher; 71 bad node; 75 not enough nodes in time; 76 unusable
shared state.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for, checked flag by flag and against each other. Durations are seconds."""

    nnodes: NodeRange
    nproc_per_node: int | str  # a number, or auto, cpu, gpu
    standalone: bool
    rdzv_endpoint: str  # "" where there is none
    rdzv_id: str | None  # None: to be generated
    rdzv_backend: str
    rdzv_conf: Mapping[str, str]
    rdzv_timeout: float | None
    local_addr: str | None
    node_rank: int
    master_addr: str | None
    master_port: int | None
    module: bool
    no_python: bool
    run_path: bool
    role: str
    start_method: str
    devices: tuple[str, ...] | None
    devices_per_rank: int | None
    device_variable: str
    virtual_local_rank: bool
    numa_binding: str | None
    max_restarts: int
    monitor_interval: float
    shutdown_timeout: float | None
    signals_to_handle: tuple[str, ...]
    signals_to_pass_on: tuple[str, ...]
    restart_backoff: float
    max_same_failures: int
    exit_barrier_timeout: float
    finish_timeout: float
    notice_timeout: float
    notice_signal: str | None
    log_dir: str | None
    redirects: Std | dict[int, Std]
    tee: Std | dict[int, Std]
    local_ranks_filter: tuple[int, ...] | None
    ranks_filter: tuple[int, ...] | None
    log_line_prefix_template: str | None
    log_max_size: int | None
    log_keep: int
    logs_specs: str | None
    dump_stacks: bool
    duplicate_stdout_filters: tuple[str, ...]
    duplicate_stderr_filters: tuple[str, ...]
    event_log_handler: str
    metrics_port: int | None
    metrics_host: str
    health_port: int | None
    health_host: str
    node_check: str | None
    node_check_timeout: float
    first_report_timeout: float
    silence_timeout: float
    no_stragglers: bool
    script: str
    script_args: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()  # one sentence for each value that a variable gave, or failed to give
    warnings: tuple[str, ...] = ()


class HelpRequested(Exception):
    """``--help`` was given; the text of the exception is the help."""


class VersionRequested(Exception):
    """``--version`` was given."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')}; see {_PROGRAM} --help")


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """The options of a command line.

    :param argv: the arguments, without the program's name. Everything after the script is the script's.
    :param environ: the environment; only names that begin with ``PET_`` are read.
    :raises UsageError: one sentence, for the first thing that is wrong.
    :raises HelpRequested: ``--help`` stands before the script.
    :raises VersionRequested: ``--version`` does.
    """
    given, script, script_args = _split(argv)
    options: dict[str, Any] = {}
    origins: list[str] = []
    for flag in FLAGS:
        texts = given.get(flag.dest)
        variable = environ.get(flag.variable, "")
        if texts is not None:
            options[flag.dest] = _converted(flag, texts, flag.long)
            if variable:
                shown = _shown(flag, texts[-1], options[flag.dest])
                origins.append(f"{flag.long} is {shown}, from the command line; {flag.variable} is not used")
        elif variable:
            options[flag.dest] = _converted(flag, [variable], flag.variable)
            shown = _shown(flag, variable, options[flag.dest])
            origins.append(f"{flag.long} is {shown}, from {flag.variable}")
        else:
            options[flag.dest] = flag.default
    _check_entrypoint(options)
    if options["rdzv_id"] == _NO_RUN_ID:
        options["rdzv_id"] = None
    set_here = {flag.dest for flag in FLAGS if flag.dest in given or environ.get(flag.variable)}
    warnings = _unknown_variables(environ) + backends.settle(options, set_here)
    return Options(
        **options, script=script, script_args=script_args, origins=tuple(origins), warnings=tuple(warnings)
    )


def help_text() -> str:
    """What ``--help`` prints."""
    parser = _parser(underscores=False)
    parser.add_argument("script", metavar="SCRIPT", help="what each worker runs")
    parser.add_argument("script_args", metavar="...", help="its arguments, passed on untouched")
    return parser.format_help()


def _split(argv: Sequence[str]) -> tuple[dict[str, list[str]], str, tuple[str, ...]]:
    """The flags' texts by field, the script, the script's arguments."""
    end = _end_of_flags(argv)
    for word in argv[:end]:
        name, equals, _ = word.replace("_", "-").partition("=")
        if equals and name in {flag.long for flag in FLAGS if flag.kind == "switch"}:
            raise UsageError(f"{name} takes no value; write it alone, or leave it out")
    namespace, unknown = _parser(underscores=True).parse_known_args(list(argv[:end]))
    given: dict[str, list[str]] = vars(namespace)
    if "help" in given:
        raise HelpRequested(help_text())
    if "version" in given:
        raise VersionRequested
    if unknown:
        raise UsageError(_unknown_flag(unknown[0]))
    command = argv[end + 1 :] if argv[end : end + 1] == ["--"] else argv[end:]
    if not command:
        raise UsageError(f"there is no script to run; write {_PROGRAM} [flags] SCRIPT [its arguments]")
    return given, command[0], tuple(command[1:])


def _end_of_flags(argv: Sequence[str]) -> int:
    """Where the script stands, or the ``--`` before it.

    argparse is not asked, because it drops a ``--`` that belongs to the script's arguments, and takes
    the value of an unknown flag for the script.
    """
    index = 0
    while index < len(argv):
        word = argv[index]
        if word in ("-", "--") or not word.startswith("-"):
            return index
        index += 2 if _takes_next_word(word) else 1
    return len(argv)


def _takes_next_word(word: str) -> bool:
    if word.startswith("--"):
        return word.replace("_", "-") in {flag.long for flag in FLAGS if flag.kind != "switch"}
    # Short flags may be written together; the first that takes a value takes the rest of the word, if any.
    shorts = {flag.short: flag for flag in FLAGS if flag.short}
    for position, letter in enumerate(word[1:], 2):
        flag = shorts.get(f"-{letter}")
        if flag is not None and flag.kind != "switch":
            return position == len(word)
    return False


def _parser(*, underscores: bool) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM,
        usage="elasticrun [flags] SCRIPT [its arguments]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    groups = {key: parser.add_argument_group(title) for key, title in GROUPS.items()}
    for flag in FLAGS:
        spellings = [flag.short] if flag.short else []
        spellings.append(flag.long)
        if underscores and "-" in flag.name:
            spellings.append(f"--{flag.dest}")
        group = groups[flag.group]
        if flag.kind == "switch":
            group.add_argument(*spellings, dest=flag.dest, action="append_const", const="1", help=flag.help)
        else:
            group.add_argument(
                *spellings, dest=flag.dest, action="append", metavar=flag.metavar, help=flag.help
            )
    parser.add_argument("-h", "--help", action="store_true", help="show this and exit")
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    return parser


def _converted(flag: Flag, texts: Sequence[str], label: str) -> Any:
    # Of a flag that is given twice the last counts, as everywhere; one that may be repeated merges.
    try:
        if flag.kind == "repeat":
            return merged([flag.convert(text) for text in texts])
        return flag.convert(texts[-1])
    except ValueError as error:
        shown = label if flag.kind == "repeat" else f"{label}={texts[-1]}"
        raise UsageError(f"{_printable(shown)}: {error}") from None


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


def _shown(flag: Flag, text: str, value: Any) -> str:
    # Of settings the names only: a value may be a password.
    return f"set for {', '.join(value) or 'nothing'}" if flag.kind == "repeat" else _printable(text)


def _unknown_flag(text: str) -> str:
    name = text.partition("=")[0]
    near = _nearest(name.replace("_", "-"), (flag.long for flag in FLAGS))
    hint = f"did you mean {near}?" if near else f"see {_PROGRAM} --help; the script's own flags go after it"
    return f"unknown flag {_printable(name)}: {hint}"


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = {flag.variable for flag in FLAGS}
    strangers = sorted(name for name in environ if name.startswith(_PREFIX) and name not in known)
    if not strangers:
        return []
    described = []
    for name in strangers:
        near = _nearest(name, known)
        described.append(f"{name} (did you mean {near}?)" if near else name)
    return [f"ignored, as no flag has that name: {', '.join(described)}"]


def _nearest(word: str, candidates: Iterable[str]) -> str | None:
    ordered = sorted(candidates)
    begun = [candidate for candidate in ordered if candidate.startswith(word)]
    if len(begun) == 1 and len(word.strip("-")) > 1:
        return begun[0]
    return next(iter(difflib.get_close_matches(word, ordered, n=1, cutoff=0.75)), None)


def _check_entrypoint(options: Mapping[str, Any]) -> None:
    chosen = [f"--{name.replace('_', '-')}" for name in ("module", "no_python", "run_path") if options[name]]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other; keep one")
