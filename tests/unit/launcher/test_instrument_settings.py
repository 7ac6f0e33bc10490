"""The settings of the instruments: what they are by default, and the sentence for each that is wrong."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from elastic.launcher import InstrumentSettings, LaunchError, UsageError
from elastic.launcher.arguments import parse
from elastic.launcher.instruments import check_this_node

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"metrics_port": 65536}, "metrics_port=65536 is no port"),
    ({"metrics_port": -1}, "metrics_port=-1 is no port"),
    ({"health_port": 70000}, "health_port=70000 is no port"),
    ({"metrics_port": "9400"}, "metrics_port='9400' is no port"),
    ({"health_port": True}, "health_port=True is no port"),
    ({"health_host": ""}, "health_host='' is no host"),
    ({"metrics_host": None}, "metrics_host=None is no host"),
    ({"metrics_host": "node0:9400"}, "metrics_host='node0:9400' is no host"),
    ({"silence_timeout": timedelta(seconds=5)}, "is no duration; give a number of seconds"),
    ({"node_check_timeout": "60"}, "node_check_timeout='60' is no duration"),
    ({"node_check": ["check", "it"]}, "node_check ['check', 'it'] is no text"),
    ({"first_report_timeout": -1.0}, "first_report_timeout=-1.0 is no duration; make it 0 or more"),
    ({"silence_timeout": math.inf}, "silence_timeout=inf is no duration"),
    ({"silence_timeout": math.nan}, "silence_timeout=nan is no duration"),
    ({"node_check_timeout": 0.0}, "node_check_timeout=0.0 is no duration; make it positive"),
    ({"node_check": " "}, "node_check is empty; name a program"),
    ({"node_check": "check 'it"}, "is no command: No closing quotation"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_setting_that_is_wrong_is_refused_in_one_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        InstrumentSettings(**settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_ends_of_what_is_right() -> None:
    InstrumentSettings(metrics_host="::1", health_host="0.0.0.0")
    InstrumentSettings(metrics_port=0, health_port=65535, first_report_timeout=0, silence_timeout=1e9)


def test_by_default_nothing_listens_and_nobody_has_to_report() -> None:
    settings = InstrumentSettings()
    assert (settings.metrics_port, settings.health_port, settings.node_check) == (None, None, None)
    assert (settings.first_report_timeout, settings.silence_timeout) == (0, 0)
    assert settings.find_stragglers
    assert {settings.metrics_host, settings.health_host} == {"127.0.0.1"}


def test_the_command_has_the_same_defaults() -> None:
    options, settings = parse(["train.py"], {}), InstrumentSettings()
    for name in InstrumentSettings.__dataclass_fields__:
        if name != "find_stragglers":
            assert getattr(options, name) == getattr(settings, name), name
    assert options.no_stragglers is not settings.find_stragglers


def test_the_flags_may_be_written_as_variables() -> None:
    options = parse(["train.py"], {"PET_METRICS_PORT": "0", "PET_NODE_CHECK": "nvidia-smi -L"})
    assert (options.metrics_port, options.node_check) == (0, "nvidia-smi -L")


def test_a_node_is_checked_in_the_environment_of_the_agent() -> None:
    settings = InstrumentSettings(node_check="sh -c 'exit $HOW'")
    labels = check_this_node(settings, {"HOW": "0", "PATH": "/usr/bin:/bin"})
    assert labels["node-check"] == "good"
    assert labels["machine"]
    with pytest.raises(LaunchError, match="this node does not join") as caught:
        check_this_node(settings, {"HOW": "1", "PATH": "/usr/bin:/bin"})
    assert caught.value.exit_code == 71


def test_without_a_check_there_is_nothing_to_publish() -> None:
    assert check_this_node(InstrumentSettings(), {}) == {}
