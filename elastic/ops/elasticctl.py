"""``elasticctl``: look at a run, and steer it, from a shell. It needs the endpoint of etcd and the run's id.

Composition: reads the command line and the environment, reads or writes the run's records once, prints.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from elastic.etcd import EtcdError
from elastic.rendezvous import RendezvousParameters, RendezvousStateError
from elastic.rendezvous.backends.etcd import read_run, write_control
from elastic.rendezvous.core.records import Control
from elastic.utils.exit_codes import ExitCode
from elastic.utils.key_values import key_values

from .status import as_text, status


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; its exit code: 0, 1 for an unknown run, 2 for usage, 69 where etcd cannot be used, 76
    for records that cannot be read."""
    options = _parser().parse_args(sys.argv[1:] if args is None else args)
    try:
        command: Callable[[argparse.Namespace, Mapping[str, str]], int] = options.command
        return command(options, os.environ)
    except ValueError as e:
        return _told(str(e), ExitCode.USAGE)
    except EtcdError as e:
        return _told(str(e), ExitCode.UNAVAILABLE)
    except RendezvousStateError as e:
        return _told(str(e), ExitCode.STATE)


def _status(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    view = read_run(_run(options), environ)
    if not view.entries:
        return _told(f"there is no run {options.run_id!r} at {options.endpoint}", ExitCode.NOT_FOUND)
    found = status(options.run_id, view)
    print(json.dumps(found) if options.json else as_text(found))
    return ExitCode.SUCCESS


def _stragglers(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if write_control(_run(options), environ, Control(find_stragglers=options.state == "on")):
        return ExitCode.SUCCESS
    return _told(f"no run {options.run_id!r} is going on at {options.endpoint}", ExitCode.NOT_FOUND)


def _run(options: argparse.Namespace) -> RendezvousParameters:
    try:
        settings = key_values(",".join(options.conf))
    except ValueError as e:
        raise ValueError(f"--conf {','.join(options.conf)}: {e}") from e
    return RendezvousParameters("etcd", options.endpoint, options.run_id, 1, 1, **settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="elasticctl", description="Look at elastic runs, and steer them.", allow_abbrev=False
    )
    parser.add_argument(
        "--endpoint",
        default="127.0.0.1:2379",
        metavar="HOST:PORT",
        help="etcd, or a comma-separated list of its members (%(default)s)",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="the settings of --rdzv-conf that say how to reach etcd: etcd_prefix, ca_cert, user, ...",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("status", help="round, world, ranks, who waits, and why", allow_abbrev=False)
    one.add_argument("run_id", metavar="RUN_ID")
    one.add_argument("--json", action="store_true", help="for programs")
    one.set_defaults(command=_status)
    switch = commands.add_parser(
        "stragglers", help="have all agents name slow workers, or not", allow_abbrev=False
    )
    switch.add_argument("run_id", metavar="RUN_ID")
    switch.add_argument("state", choices=("on", "off"))
    switch.set_defaults(command=_stragglers)
    return parser


def _told(sentence: str, code: int) -> int:
    print(f"elasticctl: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
