"""Whether the kernel's out-of-memory killer may have ended a worker. Reads the counters of the cgroup.

Only version 2 of cgroups says how many of a group's processes were killed; where that can't be read, the
hint says where else to look. It decides nothing.
"""

import signal
from pathlib import Path

_OWN_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def oom_kills(groups: Path = _OWN_GROUPS, root: Path = _ROOT) -> int | None:
    """How many processes of this process's cgroup the killer has ended so far; None if nobody can tell.

    Args:
        groups: The file that names the cgroups of this process.
        root: Where the cgroups are mounted.
    """
    try:
        named = next(line for line in groups.read_text().splitlines() if line.startswith("0::"))
        events = (root / named.removeprefix("0::").lstrip("/") / "memory.events").read_text()
        counts = dict(line.split(maxsplit=1) for line in events.splitlines())
        return int(counts["oom_kill"])
    except (OSError, StopIteration, KeyError, ValueError):
        return None


def oom_hint(exitcode: int, *, before: int | None, now: int | None) -> str:
    """What to tell about a worker that ended so; empty if memory needs no mention.

    Args:
        exitcode: ``-n`` if signal ``n`` ended the worker. It must not have been sent by its launcher.
        before: What :func:`oom_kills` said when the workers were started.
        now: What it says after the end.
    """
    if exitcode != -signal.SIGKILL:
        return ""
    if before is None or now is None:
        return "killed from outside; often that is the kernel, out of memory: see dmesg on that host"
    if now > before:
        return "out of memory: the kernel's OOM killer ended processes of this cgroup while it ran"
    return "killed from outside, and not by the kernel for lack of memory: its cgroup counts no such kill"
