"""What the README shows is run as it stands, but for the names of machines and files.

Numbers of nodes are narrowed to those of the test, so that no world waits for more.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.etcd import EtcdServer

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PLAIN = ROOT / "deploy" / "examples" / "train_plain.py"
PATIENCE = 90.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def example(language: str, marker: str, changes: Mapping[str, str]) -> str:
    """The one example of the README that holds the marker, with these texts replaced."""
    (text,) = [block for block in blocks(language) if marker in block]
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def start(command: Sequence[str], directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outputs(*processes: subprocess.Popen[str]) -> list[str]:
    """What each printed; all must succeed. None is left running."""
    try:
        printed = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [process.returncode for process in processes] == [0] * len(processes), printed
    return printed


def elasticrun(command: str) -> list[str]:
    """The words of a command line, with the command of this checkout."""
    name, *arguments = shlex.split(command.replace("\\\n", ""))
    assert name == "elasticrun"
    return [sys.executable, "-m", "elastic.run", *arguments]


def test_the_command_for_one_machine(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:])")
    (printed,) = outputs(start(elasticrun(example("sh", "--standalone", {})), tmp_path))
    assert printed.count("['--lr', '0.1']") == 2


def test_the_command_for_a_cluster(etcd: EtcdServer, tmp_path: Path) -> None:
    changes = {
        "etcd-1:2379,etcd-2:2379,etcd-3:2379": etcd.endpoint,
        "my-job": "readme-cluster",
        "1:4": "1:2",
        "train.py": f"{PLAIN} --steps 3",
        "/shared/checkpoints": str(tmp_path),
    }
    command = elasticrun(example("sh", "/shared/checkpoints", changes))
    printed = outputs(start(command, tmp_path), start(command, tmp_path))
    assert all('"world": 2' in text for text in printed)


def test_the_launcher_from_python(tmp_path: Path) -> None:
    program = example("python", "elastic_launch", {"...": "return learning_rate"})
    (tmp_path / "job.py").write_text(program + "    print(losses)\n")
    (printed,) = outputs(start([sys.executable, "job.py"], tmp_path))
    assert "{0: 0.1, 1: 0.1}" in printed


def test_the_rendezvous_from_python(etcd: EtcdServer, tmp_path: Path) -> None:
    changes = {"etcd-1:2379": etcd.endpoint, "my-job": "readme-rendezvous", "max_nodes=8": "max_nodes=2"}
    (tmp_path / "node.py").write_text(example("python", "create_handler", changes))
    command = [sys.executable, "node.py"]
    printed = outputs(start(command, tmp_path), start(command, tmp_path))
    worlds = sorted(tuple(text.split()[:3]) for text in printed)
    assert worlds == [("1", "0", "2"), ("1", "1", "2")]
