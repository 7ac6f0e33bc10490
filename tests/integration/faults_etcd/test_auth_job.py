"""A job on an etcd with users, whose tokens live for five seconds and whose users change all the time."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import Command
from support.etcd import BINARIES, EtcdServer
from support.job import SLEEPER, Job

from elastic.etcd import Client

MakeServer = Callable[..., EtcdServer]
USER = "trainer"
# What the agents say at INFO when etcd is not as it should be; none of it may come.
TROUBLE = re.compile(r"away|lost|denied|refused|expired|not renewed|registering again|token|Traceback")


@pytest.fixture
def password() -> str:
    return f"hush-{uuid.uuid4().hex}"


@pytest.fixture(params=list(BINARIES))
def guarded(request: pytest.FixtureRequest, etcd_server: MakeServer, password: str) -> EtcdServer:
    """A server with users; `trainer` may use the keys of the runs and no others."""
    arguments = ["--auth-token=simple", "--auth-token-ttl=5", "--bcrypt-cost=4"]
    server = etcd_server(version=request.param, arguments=arguments)
    for words in (
        ("role", "add", "root"),
        ("user", "add", "root:root"),
        ("user", "grant-role", "root", "root"),
        ("role", "add", "runs"),
        ("role", "grant-permission", "runs", "--prefix=true", "readwrite", "/elastic/"),
        ("user", "add", f"{USER}:{password}"),
        ("user", "grant-role", USER, "runs"),
        ("auth", "enable"),
    ):
        server.ctl(*words)
    return server


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    with Command(tmp_path) as starter:
        yield starter


def _command_lines() -> bytes:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                found.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return b"\n".join(found)


@pytest.mark.parametrize("users", [2, pytest.param(17, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_a_job_does_not_notice_tokens_that_end_and_users_that_come(
    guarded: EtcdServer, password: str, tmp_path: Path, users: int
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(password + "\n")
    with Job(guarded.endpoint, tmp_path, nodes="3", ttl=10, user=USER, password=password) as job:
        script = job.script(SLEEPER)
        flags = ("--max-restarts=0",)
        by_file = {"conf": f"user={USER},password_file={secret}"}
        by_environment = {"ELASTIC_ETCD_USER": USER, "ELASTIC_ETCD_PASSWORD": password}
        agents = [
            job.start("a", script, str(job.stop_file), flags=flags, LOGLEVEL="DEBUG", **by_file),
            job.start("b", script, str(job.stop_file), flags=flags, LOGLEVEL="DEBUG", **by_environment),
            job.start("c", script, str(job.stop_file), flags=flags, LOGLEVEL="DEBUG", **by_environment),
        ]
        rounds = {agent.wait_for_world(3) for agent in agents}
        marks = [len(agent.lines) for agent in agents]
        for number in range(users):
            time.sleep(7.0)  # longer than a token lives without use, so that some of them end as well
            guarded.ctl("--user=root:root", "user", "add", f"guest-{number}:x")
        shown = _command_lines()
        quiet = [agent.lines[mark:] for agent, mark in zip(agents, marks, strict=True)]
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0, 0]
        noticed = [line for lines in quiet for line in lines if TROUBLE.search(line)]
        assert noticed == []
        assert rounds == {1}
        assert {place["round"] for agent in agents for place in agent.places()} == {1}
        assert job.record("closed")["outcome"] == "SUCCEEDED"
        with Client([guarded.endpoint], user="root", password="root") as root:
            stored = b"".join(kv.key + kv.value for kv in root.get_prefix(b"").kvs)
        everything = [*(agent.text for agent in agents), guarded.log.read_text(errors="replace")]
        assert b"--nnodes=3" in shown, "the agents are in the process list"
        assert password.encode() not in shown
        assert password.encode() not in stored
        assert not [text for text in everything if password in text]


@pytest.mark.parametrize("given", ["environment", "file"])
def test_a_wrong_password_is_told_in_one_sentence_without_it(
    command: Command, guarded: EtcdServer, tmp_path: Path, given: str
) -> None:
    guess = f"guess-{uuid.uuid4().hex}"
    secret = tmp_path / "secret"
    secret.write_text(guess)
    by_file = f",user={USER},password_file={secret}"
    env = {"ELASTIC_ETCD_USER": USER, "ELASTIC_ETCD_PASSWORD": guess} if given == "environment" else {}
    got = command.run(
        "--rdzv-backend=etcd",
        f"--rdzv-endpoint={guarded.endpoint}",
        "--rdzv-id=guess",
        f"--rdzv-conf=connect_timeout=5{by_file if given == 'file' else ''}",
        command.script("raise SystemExit('must not run')"),
        LOGLEVEL="WARNING",
        **env,
    )
    *warnings, sentence = got.stderr.splitlines()
    assert got.returncode == 69
    assert "authentication failed" in sentence
    assert "check the user name and the password" in sentence
    assert not [line for line in warnings if "WARNING" not in line]
    assert guess not in got.stdout + got.stderr


def test_no_user_at_all_is_told_in_one_sentence(command: Command, guarded: EtcdServer) -> None:
    got = command.run(
        "--rdzv-backend=etcd",
        f"--rdzv-endpoint={guarded.endpoint}",
        "--rdzv-id=nobody",
        command.script("raise SystemExit('must not run')"),
    )
    assert got.returncode == 69
    assert "requires authentication: give a user name and a password" in got.stderr.splitlines()[-1]
    assert "Traceback" not in got.stderr
