"""The real command, as a user starts it: another process, with an environment of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; bounds a hang, and measures nothing
_FOREIGN = ("PET_", "ELASTIC_", "TORCHELASTIC_", "TORCH_", "CUDA_", "OMP_", "SLURM_", "LOGLEVEL")


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, without what would speak to the launcher, and with ``extra``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {**inherited, "PYTHONPATH": str(ROOT), **extra}


@dataclass
class Command:
    """Starts the command in ``directory``. A context manager: it ends what was left running."""

    directory: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *argv: str, **extra: str) -> subprocess.Popen[str]:
        """Start the command; ``extra`` is added to its environment."""
        process = subprocess.Popen(
            [sys.executable, "-m", "elastic.run", *argv],
            cwd=self.directory,
            env=environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, *argv: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Start the command, and wait for its end."""
        return finished(self.start(*argv, **extra))

    def script(self, text: str, name: str = "train.py") -> str:
        """Write a script into the directory; returns its name."""
        (self.directory / name).write_text(text)
        return name

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.communicate()


def finished(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for the end, and return everything the process said."""
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
