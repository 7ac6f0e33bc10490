"""Backends by name: registered from code, or installed as entry points of real distributions."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic.rendezvous import (
    RendezvousError,
    RendezvousHandler,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    create_handler,
    get_registry,
)

HANDLER = """
from elastic.rendezvous import RendezvousHandler

class Handler(RendezvousHandler):
    def get_backend(self): return {name!r}
    def next_rendezvous(self): raise NotImplementedError
    def is_closed(self): return False
    def set_closed(self): pass
    def num_nodes_waiting(self): return 4
    def get_run_id(self): return "job"
    def shutdown(self): return True

def create(params):
    return Handler()
"""


class Handler(RendezvousHandler):
    """The common interface, and nothing more."""

    def get_backend(self) -> str:
        return "mine"

    def next_rendezvous(self) -> RendezvousInfo:
        raise NotImplementedError

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None: ...

    def num_nodes_waiting(self) -> int:
        return 4

    def get_run_id(self) -> str:
        return "job"

    def shutdown(self) -> bool:
        return True


def create_mine(params: RendezvousParameters) -> RendezvousHandler:
    return Handler()


def parameters(backend: str) -> RendezvousParameters:
    return RendezvousParameters(backend, "a:1", "job", 1, 1)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a distribution: (its name, the source of its module, its entry points)."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(name: str, source: str, **entries: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{entry} = {value}" for entry, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[elastic.rendezvous]", *lines]))
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, name, raising=False)

    return add


def test_register_and_create() -> None:
    registry = RendezvousHandlerRegistry()
    registry.register("mine", create_mine)
    assert registry.create_handler(parameters("mine")).get_backend() == "mine"
    assert "mine" in registry.names()


def test_registering_the_same_again_is_no_conflict_but_another_is() -> None:
    registry = RendezvousHandlerRegistry()
    registry.register("mine", create_mine)
    registry.register("mine", create_mine)
    with pytest.raises(ValueError, match="'mine' is registered already"):
        registry.register("mine", lambda params: Handler())
    assert registry.create_handler(parameters("mine")).get_backend() == "mine"


def test_a_backend_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        RendezvousHandlerRegistry().register("", create_mine)


def test_an_unknown_backend_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown rendezvous backend 'etdc': did you mean 'etcd'"):
        create_handler(parameters("etdc"))


def test_an_unknown_backend_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"known are .*etcd") as caught:
        create_handler(parameters("zzzzz"))
    assert not isinstance(caught.value, KeyError)


def test_a_handler_that_calls_itself_otherwise_is_refused() -> None:
    registry = RendezvousHandlerRegistry()
    registry.register("theirs", create_mine)
    with pytest.raises(RuntimeError, match=r"'theirs'.*'mine'"):
        registry.create_handler(parameters("theirs"))


def test_ours_is_an_entry_point_like_any_other() -> None:
    assert "etcd" in get_registry().names()
    (entry,) = importlib.metadata.entry_points(group="elastic.rendezvous", name="etcd")
    assert entry.value == "elastic.rendezvous.backends.etcd:create_handler"


def test_the_registry_is_one() -> None:
    assert get_registry() is get_registry()


def test_an_installed_backend_is_found_and_made(install: Callable[..., None]) -> None:
    install("their_rdzv", HANDLER.format(name="theirs"), theirs="their_rdzv:create")
    assert "theirs" in get_registry().names()
    handler = create_handler(parameters("theirs"))
    assert (handler.get_backend(), type(handler).__module__) == ("theirs", "their_rdzv")


@pytest.mark.parametrize(
    ("source", "value", "word"),
    [
        ("import no_such_module_anywhere", "broken_rdzv:create", "no_such_module_anywhere"),
        ("", "broken_rdzv:create", "create"),
        ("", "missing_rdzv:create", "missing_rdzv"),
        ("1 / 0", "broken_rdzv:create", "division by zero"),
        ("def create(:", "broken_rdzv:create", "invalid syntax"),
        ("create = 5", "broken_rdzv:create", "is 5, and no function"),
    ],
)
def test_a_broken_backend_names_itself_and_breaks_nothing_else(
    install: Callable[..., None], source: str, value: str, word: str
) -> None:
    install("broken_rdzv", source, broken=value)
    install("whole_rdzv", HANDLER.format(name="whole"), whole="whole_rdzv:create")
    with pytest.raises(RuntimeError, match=word) as caught:
        create_handler(parameters("broken"))
    assert "'broken'" in str(caught.value)
    assert value in str(caught.value)
    assert (caught.value.__cause__ is None) == ("is 5" in str(caught.value))
    assert create_handler(parameters("whole")).get_backend() == "whole"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return {}['boo']", r"KeyError\('boo'\) \(.*failing_rdzv.py:2\)"),
        ("return None", "made None, which is no"),
    ],
)
def test_a_backend_that_makes_no_handler_names_itself(
    install: Callable[..., None], body: str, words: str
) -> None:
    install("failing_rdzv", f"def create(params):\n    {body}\n", failing="failing_rdzv:create")
    with pytest.raises(RuntimeError, match=f"'failing'.*{words}"):
        create_handler(parameters("failing"))


@pytest.mark.parametrize("error", ["ValueError", "RendezvousConnectionError"])
def test_what_a_backend_refuses_is_its_own_word(install: Callable[..., None], error: str) -> None:
    source = f"from elastic.rendezvous import *\ndef create(params):\n    raise {error}('no such host')\n"
    install("refusing_rdzv", source, refusing="refusing_rdzv:create")
    with pytest.raises((ValueError, RendezvousError), match=r"^no such host$"):
        create_handler(parameters("refusing"))


def test_another_package_takes_no_name_of_ours(install: Callable[..., None]) -> None:
    install("taking_rdzv", "raise SystemExit('loaded')", tcp="taking_rdzv:create")
    handler = create_handler(RendezvousParameters("tcp", "127.0.0.1:0", "job", 1, 1))
    assert handler.shutdown()


def test_one_name_of_two_packages_is_told(install: Callable[..., None]) -> None:
    install("first_rdzv", HANDLER.format(name="both"), both="first_rdzv:create")
    install("second_rdzv", HANDLER.format(name="both"), both="second_rdzv:create")
    with pytest.raises(RuntimeError, match=r"\(first_rdzv:create, second_rdzv:create\): uninstall"):
        create_handler(parameters("both"))


def test_only_the_backend_that_is_asked_for_is_loaded(install: Callable[..., None]) -> None:
    install("unused_rdzv", "raise SystemExit('loaded')", unused="unused_rdzv:create")
    registry = RendezvousHandlerRegistry()
    registry.register("mine", create_mine)
    registry.create_handler(parameters("mine"))
    assert "unused" in registry.names()
    assert "unused_rdzv" not in sys.modules


def test_what_code_registers_comes_before_what_is_installed(install: Callable[..., None]) -> None:
    install("their_rdzv", HANDLER.format(name="mine"), mine="their_rdzv:create")
    registry = RendezvousHandlerRegistry()
    registry.register("mine", create_mine)
    assert isinstance(registry.create_handler(parameters("mine")), Handler)


def test_a_handler_of_the_common_interface_is_one_an_agent_can_use() -> None:
    """What it does not have falls back on what it has."""
    handler = Handler()
    assert handler.status().nodes_waiting == 4
    assert handler.subscribe(lambda: None) is False
    assert handler.report_success() is False
    assert (handler.shares_failures, handler.use_agent_store, handler.node_id) == (False, False, "")
    handler.announce(role="r", local_world_size=1)
    handler.workers_started()
    handler.regroup("why")
    handler.leave("why")
