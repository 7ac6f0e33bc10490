"""The distribution, and the documents that repeat what the code says: they must say the same."""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

import pytest

import elastic
from elastic.agent.server.environment import JobFacts, worker_environment
from elastic.agent.server.ranks import WorkerRanks
from elastic.launcher.exit_codes import ExitCode
from elastic.launcher.flags import FLAGS
from elastic.multiprocessing import DefaultLogsSpecs
from elastic.rendezvous.settings import KEYS

ROOT = Path(__file__).resolve().parents[2]
NAME = "tensorplay-elastic"
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
]


def document(name: str) -> str:
    return (ROOT / name).read_text()


def section(name: str, heading: str) -> str:
    """One section of a document."""
    _, _, rest = document(name).partition(f"\n## {heading}\n")
    assert rest, f"{name} has no section {heading}"
    return rest.partition("\n## ")[0]


def anchors(path: Path) -> set[str]:
    """What links to the headings of a document may name."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables in it, headings too."""
    lines = [line for line in text.splitlines() if line.startswith("|") and line.strip("|- ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def names(cell: str) -> list[str]:
    """The words in it that are set as code."""
    return re.findall(r"`(\w+)`", cell)


def test_the_version_is_the_packages() -> None:
    assert importlib.metadata.version(NAME) == elastic.__version__
    assert f"## [{elastic.__version__}]" in document("CHANGELOG.md")


@pytest.mark.parametrize("command", ["elasticrun", "elasticctl"])
def test_a_command_is_a_function(command: str) -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name=command)
    assert callable(entry.load())


def test_the_backend_is_a_function() -> None:
    (entry,) = importlib.metadata.entry_points(group="elastic.rendezvous", name="etcd")
    assert callable(entry.load())


def test_the_default_logs_specs_are_ours() -> None:
    (entry,) = importlib.metadata.entry_points(group="elastic.logs_specs", name="default")
    assert entry.load() is DefaultLogsSpecs


def version(text: str) -> tuple[int, ...]:
    """The numbers of a version, so that 8.3 and 8.3.0 are the same."""
    return tuple(int(part) for part in re.sub(r"(\.0)+$", "", text).split("."))


def test_the_oldest_versions_that_we_allow_are_those_that_are_tested() -> None:
    required = [text for text in importlib.metadata.requires(NAME) or [] if "extra ==" not in text]
    floors = {match[1]: match[2] for text in required if (match := re.match(r"([\w-]+).*>=([\d.]+)", text))}
    (pins,) = re.findall(r"tier=oldest .*requirements=\((.*?)\)", document("scripts/test"))
    tested = dict(pin.split("==") for pin in pins.split())
    tested.pop("grpcio")  # a server that tests hold the client against
    assert len(floors) == len(required)
    assert {name: version(text) for name, text in tested.items()} == {
        name: version(text) for name, text in floors.items()
    }


def test_packages_are_marked_as_typed() -> None:
    assert (ROOT / "elastic" / "py.typed").exists()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_scripts_that_a_document_names_can_be_run(name: str) -> None:
    commands = set(re.findall(r"(?:scripts|\.ci)/[\w-]+", document(name)))
    assert commands
    assert [command for command in sorted(commands) if not os.access(ROOT / command, os.X_OK)] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_inside_the_repository_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", document(name))
    targets = [((ROOT / name).parent / target if target else ROOT / name, anchor) for target, anchor in links]
    assert [str(path) for path, _ in targets if not path.exists()] == []
    assert [(str(path), anchor) for path, anchor in targets if anchor and anchor not in anchors(path)] == []


def test_the_reference_has_every_setting_of_the_rendezvous() -> None:
    table = rows(section("docs/reference.md", "Settings of the rendezvous"))
    defaults = {name: row[1].strip("`") for row in table for name in names(row[0])}
    assert sorted(defaults) == sorted(KEYS)
    for name, meaning in KEYS.items():
        default = re.search(r"\(([\w/.]+)\)$", meaning)
        assert default is None or default[1] == defaults[name], name


def test_the_readme_has_every_exit_code() -> None:
    codes = [row[0] for row in rows(section("README.md", "Exit codes")) if row[0].isdecimal()]
    # elasticctl alone has NOT_FOUND; for the launcher, 1 is a worker's own.
    assert codes == [str(code.value) for code in sorted(ExitCode) if code != ExitCode.NOT_FOUND]


def test_the_reference_has_every_variable_of_a_worker() -> None:
    facts = JobFacts(
        run_id="job",
        round=1,
        node_id="node",
        node_rank=0,
        node_count=1,
        local_world_size=1,
        role="default",
        master_addr="localhost",
        master_port=29500,
        failures=0,
        max_restarts=0,
        uses_agent_store=False,
        shutdown_timeout=30.0,
    )
    ranks = WorkerRanks(local_rank=0, rank=0, world_size=1, role_rank=0, role_world_size=1)
    documented = {
        name for row in rows(section("docs/reference.md", "Worker environment")) for name in names(row[0])
    }
    assert sorted(worker_environment(facts, ranks, {}).keys() - documented) == []


@pytest.mark.parametrize("name", ["README.md", "docs/reference.md"])
def test_flags_that_a_document_names_are_flags(name: str) -> None:
    text = document(name)
    commands = "\n".join(re.findall(r"elasticrun[^`#]*", text))
    named = set(re.findall(r"--[a-z][\w-]*", commands)) - {"--help"}
    named |= set(re.findall(r"`(--[a-z][\w-]*)", text)) - {"--help", "--version"}
    examples = "".join(path.read_text() for path in (ROOT / "deploy" / "examples").glob("*.py"))
    known = {flag.long for flag in FLAGS} | set(re.findall(r'"(--[a-z-]+)"', examples)) | {"--lr"}
    assert sorted(named - known) == []
