"""The layers, as a test: who may import whom, what is pure, and who may read the environment.

The source is parsed, never imported. Each rule is a function from the parsed modules to sentences, one
a violation; the real tree must yield none, and small trees that break a rule show that it can fail.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What each package may import of ours besides itself. The most specific row counts.
LAYERS: Mapping[str, frozenset[str]] = {
    "elastic": frozenset(),
    "elastic.utils": frozenset(),
    "elastic.events": frozenset({"elastic.utils"}),
    "elastic.metrics": frozenset({"elastic.utils"}),
    "elastic.etcd": frozenset({"elastic.utils"}),
    "elastic.store": frozenset({"elastic.utils", "elastic.etcd"}),
    "elastic.rendezvous.core": frozenset(),
    "elastic.rendezvous": frozenset(
        {"elastic.rendezvous.core", "elastic.store", "elastic.etcd", "elastic.events", "elastic.utils"}
    ),
    "elastic.multiprocessing": frozenset({"elastic.utils", "elastic.events"}),
    "elastic.timer": frozenset({"elastic.utils", "elastic.events"}),
    "elastic.agent": frozenset(
        {
            "elastic.rendezvous",
            "elastic.rendezvous.core",
            "elastic.store",
            "elastic.multiprocessing",
            "elastic.timer",
            "elastic.events",
            "elastic.metrics",
            "elastic.utils",
        }
    ),
    "elastic.launcher": frozenset(
        {
            "elastic.agent",
            "elastic.rendezvous",
            "elastic.store",
            "elastic.etcd",
            "elastic.multiprocessing",
            "elastic.timer",
            "elastic.events",
            "elastic.metrics",
            "elastic.utils",
        }
    ),
    "elastic.run": frozenset(
        {"elastic.launcher", "elastic.multiprocessing", "elastic.rendezvous", "elastic.utils"}
    ),
    "elastic.interop": frozenset({"elastic.rendezvous", "elastic.store"}),
    "elastic.worker": frozenset({"elastic.timer"}),
    "elastic.ops": frozenset(
        {"elastic.etcd", "elastic.rendezvous", "elastic.rendezvous.core", "elastic.utils"}
    ),
}

# Modules (and packages) that decide by values alone.
PURE = frozenset(
    {
        "elastic.rendezvous.core",
        "elastic.agent.server.causes",
        "elastic.agent.server.policy",
        "elastic.agent.server.ranks",
        "elastic.agent.server.environment",
        "elastic.agent.server.restarts",
        "elastic.agent.server.stragglers",
        "elastic.launcher.arguments",
        "elastic.launcher.backends",
        "elastic.launcher.entrypoint",
        "elastic.launcher.errors",
        "elastic.launcher.exit_codes",
        "elastic.launcher.field_types",
        "elastic.launcher.flags",
        "elastic.launcher.instrument_settings",
        "elastic.launcher.values",
        "elastic.launcher.workers",
        "elastic.metrics.families",
        "elastic.metrics.snapshot",
        "elastic.multiprocessing.affinity",
        "elastic.multiprocessing.redirects",
        "elastic.rendezvous.backends.document.document",
        "elastic.rendezvous.backends.document.codec",
        "elastic.rendezvous.backends.document.pulse",
        "elastic.rendezvous.errors",
        "elastic.rendezvous.naming",
        "elastic.rendezvous.static.ranks",
        "elastic.timer.deadlines",
        "elastic.timer.series",
        "elastic.store.board",
        "elastic.store.durations",
        "elastic.store.limits",
        "elastic.store.messages",
        "elastic.store.replays",
        "elastic.store.semantics",
        "elastic.utils.endpoints",
        "elastic.utils.escalation",
        "elastic.utils.data.checks",
        "elastic.utils.data.cycling_iterator",
        "elastic.utils.data.shares",
        "elastic.utils.exit_codes",
        "elastic.utils.key_values",
    }
)
# Parts of the standard library that hold values: no clock, thread, socket, file, process, log or randomness.
VALUE_MODULES = frozenset(
    {
        "__future__",
        "abc",
        "argparse",
        "base64",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "ipaddress",
        "itertools",
        "json",
        "keyword",
        "math",
        "numbers",
        "operator",
        "re",
        "shlex",
        "statistics",
        "string",
        "textwrap",
        "types",
        "typing",
        "typing_extensions",
        "unicodedata",
    }
)
# Single value types from modules that as a whole are not pure.
VALUE_NAMES: Mapping[str, frozenset[str]] = {
    "elastic.agent.server.spec": frozenset({"WorkerState"}),
    "elastic.multiprocessing": frozenset({"ProcessFailure"}),
    "elastic.rendezvous": frozenset({"RendezvousStatus", "Standing"}),
    "pathlib": frozenset({"PurePath", "PurePosixPath"}),
    "signal": frozenset({"Signals", "SIGHUP", "SIGINT", "SIGKILL", "SIGQUIT", "SIGTERM"}),
}
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint", "__import__"})
CLOCKS = frozenset({"now", "utcnow", "today"})

# What a function may import: frameworks and bindings that need not be there.
OPTIONAL = frozenset({"torch", "tensorplay", "pynvml", "opentelemetry", "prometheus_client"})

# Who may read the process's environment, and why.
ENVIRON_READERS: Mapping[str, str] = {
    "elastic.agent.server.loop": "workers inherit the environment of their agent",
    "elastic.launcher": "composition",
    "elastic.run": "composition",
    "elastic.ops": "composition",
    "elastic.multiprocessing.contexts": "workers inherit the environment of who starts them",
    "elastic.multiprocessing.errors": "runs inside a worker",
    "elastic.multiprocessing.fork_context": "workers inherit the environment of who starts them",
    "elastic.multiprocessing.fork_server": "turns into a worker",
    "elastic.multiprocessing.stack_signal": "runs inside a worker",
    "elastic.worker": "runs inside a worker",
    "elastic.rendezvous.backends": "a password has no other way in that not everybody can read",
    "elastic.rendezvous.static.composition": "composition",
    "elastic.utils.data.world": "runs inside a worker",
    "elastic.utils.environment": "reads the one variable that its caller names",
    "elastic.utils.substitution": "without an environment handed in, runs inside a worker",
    "elastic.utils.tether": "an agent that is itself a worker goes on carrying the marker of its owner",
}

# Not to be loaded by the command line before a backend or a worker asks for it.
LAZY = frozenset(
    {
        "etcd3",
        "google.protobuf",
        "h2",
        "hypothesis",
        "numpy",
        "opentelemetry",
        "prometheus_client",
        "pytest",
        "tabulate",
        "tenacity",
        "tensorplay",
        "testcontainers",
        "torch",
    }
)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module or name, and where: ``line``, and whether inside a function."""

    target: str
    line: int
    in_function: bool


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    tree: ast.Module
    imports: tuple[Import, ...] = field(default=())


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import in the module, ``if TYPE_CHECKING`` ones too: a type is a dependency as well."""

    def visit(node: ast.AST, *, in_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, in_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            yield from (Import(f"{source}.{alias.name}", node.lineno, in_function) for alias in node.names)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, in_function=inside)

    return visit(tree, in_function=False)


def scan(root: Path) -> dict[str, Module]:
    """Parse ``root/elastic``, leaving out generated code."""
    modules = {}
    for path in sorted((root / "elastic").rglob("*.py")):
        if path.stem.endswith("_pb2"):
            continue
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree = ast.parse(path.read_text(), filename=str(path))
        package = name if is_package else name.rpartition(".")[0]
        modules[name] = Module(name, tree, tuple(imports_of(tree, package)))
    return modules


def covering(name: str, rows: frozenset[str] | Mapping[str, object]) -> str | None:
    """The longest row that is ``name`` or one of its parents."""
    while name:
        if name in rows:
            return name
        name = name.rpartition(".")[0]
    return None


def is_ours(target: str) -> bool:
    return target == "elastic" or target.startswith("elastic.")


def layer_violations(modules: Mapping[str, Module]) -> Iterator[str]:
    for module in modules.values():
        # Only the root package itself may use the root row, or a new package would pass unseen.
        row = covering(module.name, LAYERS)
        if row == "elastic" and module.name != "elastic":
            yield f"{module.name} has no row in LAYERS: say what it may import"
            continue
        for imported in module.imports:
            if not is_ours(imported.target):
                continue
            other = covering(imported.target, LAYERS)
            if other not in {row, "elastic"} and other not in LAYERS[row or ""]:
                yield f"{module.name}:{imported.line} imports {imported.target}: {row} may not import {other}"


def cycle_violations(modules: Mapping[str, Module]) -> Iterator[str]:
    graph = {
        name: sorted({other for imported in module.imports if (other := covering(imported.target, modules))})
        for name, module in modules.items()
    }
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> Iterator[str]:
        if name in path:
            yield "import cycle: " + " -> ".join([*path[path.index(name) :], name])
        elif name not in done:
            for other in graph[name]:
                yield from walk(other, (*path, name))
            done.add(name)

    for name in graph:
        yield from walk(name, ())


def purity_violations(modules: Mapping[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if covering(module.name, PURE) is None:
            continue
        for imported in module.imports:
            source, _, name = imported.target.rpartition(".")
            if is_ours(imported.target):
                allowed = covering(imported.target, PURE) is not None
            else:
                allowed = imported.target.split(".")[0] in VALUE_MODULES
            if not allowed and name not in VALUE_NAMES.get(source, ()):
                yield f"{module.name}:{imported.line} is pure but imports {imported.target}"
        for node in ast.walk(module.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in IMPURE_CALLS
            ):
                yield f"{module.name}:{node.lineno} is pure but calls {node.func.id}()"
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in CLOCKS
            ):
                yield f"{module.name}:{node.lineno} is pure but reads a clock by .{node.func.attr}()"


def local_import_violations(modules: Mapping[str, Module]) -> Iterator[str]:
    for module in modules.values():
        for imported in module.imports:
            if imported.in_function and imported.target.split(".")[0] not in OPTIONAL:
                yield f"{module.name}:{imported.line} imports {imported.target} inside a function"


def environ_violations(modules: Mapping[str, Module]) -> Iterator[str]:
    forbidden = {f"os.{name}" for name in ("environ", "environb", "getenv", "getenvb", "putenv", "unsetenv")}
    for module in modules.values():
        if covering(module.name, ENVIRON_READERS) is not None:
            continue
        used = [(imported.target, imported.line) for imported in module.imports]
        used += [
            (f"{node.value.id}.{node.attr}", node.lineno)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        ]
        yield from (
            f"{module.name}:{line} uses {name}: take the values as a parameter"
            for name, line in used
            if name in forbidden
        )


# Who may fork, and why that is safe.
FORKERS: Mapping[str, str] = {
    "elastic.multiprocessing.fork_server": "a process of its own, started by exec, without threads of ours",
}


def fork_violations(modules: Mapping[str, Module]) -> Iterator[str]:
    """Threads live in the agent: nothing of ours may run between a fork and an exec."""
    for module in modules.values():
        if module.name in FORKERS:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.keyword) and node.arg == "preexec_fn":
                yield f"{module.name}:{node.value.lineno} passes preexec_fn"
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.fork", "os.forkpty"}:
                yield f"{module.name}:{node.lineno} calls {ast.unparse(node)}"


Rule = Callable[[Mapping[str, Module]], Iterator[str]]
RULES: tuple[Rule, ...] = (
    layer_violations,
    cycle_violations,
    purity_violations,
    local_import_violations,
    environ_violations,
    fork_violations,
)


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return scan(ROOT)


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_keeps_the_rule(rule: Rule, modules: dict[str, Module]) -> None:
    assert list(rule(modules)) == []


def test_every_named_module_exists(modules: dict[str, Module]) -> None:
    """A renamed module must not slip out of the rules that name it."""
    assert sorted((PURE | ENVIRON_READERS.keys() | FORKERS.keys()) - modules.keys()) == []


@pytest.mark.parametrize(
    ("rule", "files", "expected"),
    [
        (
            layer_violations,
            {"utils/a.py": "import elastic.etcd.client", "etcd/client.py": ""},
            "elastic.utils.a:1 imports elastic.etcd.client: elastic.utils may not import elastic.etcd",
        ),
        (
            layer_violations,
            {"rendezvous/core/a.py": "from elastic.rendezvous import api", "rendezvous/api.py": ""},
            (
                "elastic.rendezvous.core.a:1 imports elastic.rendezvous.api: "
                "elastic.rendezvous.core may not import elastic.rendezvous"
            ),
        ),
        (
            layer_violations,
            {"etcd/a.py": "from ..agent.server import loop", "agent/server/loop.py": ""},
            "elastic.etcd.a:1 imports elastic.agent.server.loop: elastic.etcd may not import elastic.agent",
        ),
        (layer_violations, {"new/a.py": ""}, "elastic.new.a has no row in LAYERS: say what it may import"),
        (
            cycle_violations,
            {"utils/a.py": "from elastic.utils import b", "utils/b.py": "from elastic.utils.a import x"},
            "import cycle: elastic.utils.a -> elastic.utils.b -> elastic.utils.a",
        ),
        (
            cycle_violations,
            {"utils/__init__.py": "from .a import x", "utils/a.py": "from elastic.utils import y"},
            "import cycle: elastic.utils -> elastic.utils.a -> elastic.utils",
        ),
        (
            purity_violations,
            {"rendezvous/core/a.py": "import time"},
            "elastic.rendezvous.core.a:1 is pure but imports time",
        ),
        (
            purity_violations,
            {"agent/server/policy.py": "from elastic.agent.server.loop import x", "agent/server/loop.py": ""},
            "elastic.agent.server.policy:1 is pure but imports elastic.agent.server.loop.x",
        ),
        (
            purity_violations,
            {"rendezvous/core/a.py": "print(1)"},
            "elastic.rendezvous.core.a:1 is pure but calls print()",
        ),
        (
            purity_violations,
            {"rendezvous/core/a.py": "import datetime\ndatetime.datetime.now()"},
            "elastic.rendezvous.core.a:2 is pure but reads a clock by .now()",
        ),
        (
            local_import_violations,
            {"utils/a.py": "def f():\n    import torch\n    import json"},
            "elastic.utils.a:3 imports json inside a function",
        ),
        (
            environ_violations,
            {"utils/a.py": "import os\nx = os.environ.get('X')"},
            "elastic.utils.a:2 uses os.environ: take the values as a parameter",
        ),
        (
            environ_violations,
            {"utils/a.py": "from os import getenv"},
            "elastic.utils.a:1 uses os.getenv: take the values as a parameter",
        ),
        (fork_violations, {"utils/a.py": "Popen(x, preexec_fn=f)"}, "elastic.utils.a:1 passes preexec_fn"),
        (fork_violations, {"utils/a.py": "import os\nos.fork()"}, "elastic.utils.a:2 calls os.fork"),
    ],
)
def test_a_violation_is_seen(rule: Rule, files: Mapping[str, str], expected: str, tmp_path: Path) -> None:
    for name, text in files.items():
        path = tmp_path / "elastic" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(rule(scan(tmp_path))) == [expected]


def test_the_command_line_loads_nothing_heavy() -> None:
    program = "import elastic.run, json, sys; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert sorted(LAZY.intersection(json.loads(result.stdout))) == []
