"""The option that writes what scenarios do now into their files, for review."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the present output into the scenario files"
    )
