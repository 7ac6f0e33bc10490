"""The flags of the instruments: what is wrong with them is one sentence, before anything starts."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    with Command(tmp_path) as starter:
        yield starter


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


REFUSED: list[tuple[list[str], dict[str, str], str]] = [
    (["--event-log-handler=fiel:/tmp/a"], {}, "did you mean 'file'?"),
    (["--event-log-handler=file"], {}, "write file:/path/to/events.jsonl"),
    (["--event-log-handler=console:red"], {}, "takes no argument"),
    (
        ["--event-log-handler=file:/proc/events/a.jsonl"],
        {},
        "events can't be kept: No such file",
    ),
    (["--metrics-port=65536"], {}, "--metrics-port=65536"),
    (["--metrics-port=TAKEN"], {}, "Address already in use; choose another port, or 0"),
    (["--metrics-port=0", "--metrics-host=192.0.2.1"], {}, "can't listen on 192.0.2.1"),
    (["--health-port=-1"], {}, "--health-port=-1"),
    (["--health-port=TAKEN"], {}, "Address already in use"),
    (["--health-port=0", "--health-host=192.0.2.1"], {}, "cannot listen on 192.0.2.1"),
    ([], {"TORCHELASTIC_HEALTH_CHECK_PORT": "http"}, "TORCHELASTIC_HEALTH_CHECK_PORT=http"),
    (["--node-check="], {}, "--node-check=: is empty"),
    (["--node-check=check 'it"], {}, "is no command"),
    (["--node-check=true", "--node-check-timeout=0"], {}, "--node-check-timeout=0"),
    (["--first-report-timeout=-1"], {}, "--first-report-timeout=-1"),
    (["--first-report-timeout=inf"], {}, "--first-report-timeout=inf"),
    (["--silence-timeout=soon"], {}, "--silence-timeout=soon"),
    (["--exit-barrier-timeout=-1"], {}, "--exit-barrier-timeout=-1"),
    (
        [],
        {"TORCHELASTIC_TIMER_FILE": "/proc/timer"},
        "workers cannot report to this agent: TORCHELASTIC_TIMER_FILE=/proc/timer: no named pipe can be made",
    ),
    (["--event-log-handler=otel:collector"], {}, "give the whole URL, as in otel:http://"),
    ([], {"PET_METRICS_PORT": "many"}, "PET_METRICS_PORT=many"),
]


@pytest.mark.parametrize(("argv", "environ", "words"), REFUSED)
def test_bad_input_is_one_sentence_and_exit_code_2(
    command: Command, taken: int, argv: list[str], environ: dict[str, str], words: str, tmp_path: Path
) -> None:
    script = command.script("raise SystemExit('a worker was started')")
    flags = [flag.replace("TAKEN", str(taken)) for flag in argv]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    got = command.run(
        "--rdzv-backend=static", *flags, script, LOGLEVEL="WARNING", TMPDIR=str(temporary), **environ
    )
    assert got.returncode == 2, got.stderr
    assert got.stdout == ""
    assert words in got.stderr
    assert re.fullmatch(r"elasticrun: error: [^\n]+\n", got.stderr), got.stderr
    assert list(temporary.iterdir()) == [], "nothing is left behind"
