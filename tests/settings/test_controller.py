"""The flags of `edl controller`, and the limits that they set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.model.limits import Quota
from edl.settings.controller import ControllerSettings
from edl.settings.flags import read_settings
from edl.settings.plan import PlanSettings


def test_the_defaults_are_those_of_the_interface() -> None:
    made = read_settings(ControllerSettings, {})
    assert (made.namespace, made.listen, made.log_level, made.log_format) == (
        "paddlecloud", "0.0.0.0:8080", "info", "logfmt"
    )  # fmt: skip
    assert (made.interval_s, made.max_load_desired, made.serving_headroom) == (5.0, 1.0, "0")
    assert (made.limits.serving.grace_s, made.limits.sharing.consolidate_after_s) == (2.0, 0.0)


def test_text_from_the_command_line_becomes_values() -> None:
    made = read_settings(
        ControllerSettings,
        {
            "interval_s": "2.5",
            "serving_headroom": "3",
            "max_load_desired": "0.97",
            "watch_namespace": ["b", "a", "b"],
        },
    )
    assert made.interval_s == 2.5
    assert (made.limits.serving.headroom, made.limits.sharing.max_load_desired) == (3, 0.97)
    assert made.watch_namespace == ("b", "a")
    assert (
        read_settings(ControllerSettings, {"consolidate_after_s": "1800"}).limits.sharing.consolidate_after_s
        == 1800.0
    )


def test_a_flag_that_is_not_given_has_its_default() -> None:
    given = {"record": None, "key_file": None, "watch_namespace": None}
    assert read_settings(ControllerSettings, given) == ControllerSettings()


@pytest.mark.parametrize("word", ["debug", "DEBUG", "dbug", "warning", "eror", "critical"])
def test_a_level_has_other_names(word: str) -> None:
    assert read_settings(ControllerSettings, {"log_level": word}).log_level in {"debug", "warn", "error", "crit"}


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("interval_s", "abc"),
        ("interval_s", "0"),
        ("interval_s", "-1"),
        ("interval_s", "nan"),
        ("interval_s", "inf"),
        ("max_load_desired", "0"),
        ("max_load_desired", "1.01"),
        ("max_load_desired", "nan"),
        ("serving_headroom", "-1"),
        ("serving_headroom", "2.5"),
        ("serving_headroom", "1e9"),
        ("consolidate_after_s", "-1"),
        ("consolidate_after_s", "soon"),
        ("consolidate_after_s", "inf"),
        ("consolidate_after_s", "86401"),
        ("log_level", "loud"),
        ("log_format", "xml"),
        ("listen", "8080"),
        ("listen", "h:99999"),
        ("namespace", "Not_A_Namespace"),
        ("namespace", ""),
        ("watch_namespace", ["a b"]),
        ("master_image", "an image"),
    ],
)
def test_a_wrong_value_is_reported_with_flag_value_rule_and_remedy(flag: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(ControllerSettings, {flag: value})
    message = str(caught.value)
    assert message.startswith("--" + flag.replace("_", "-"))
    assert str(value if isinstance(value, str) else value[0])[:20] in message
    assert "; " in message


def test_every_wrong_value_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(ControllerSettings, {"interval_s": "x", "listen": "y"})
    assert len(str(caught.value).splitlines()) == 2


def test_the_message_quotes_the_declared_rule_and_remedy() -> None:
    wrong = {
        "interval_s": "0",
        "serving_headroom": "2.5",
        "log_format": "xml",
        "namespace": "A",
        "master_image": "a b",
    }
    with pytest.raises(ConfigError) as caught:
        read_settings(ControllerSettings, wrong)
    assert sorted(str(caught.value).splitlines()) == [
        "--interval-s '0': it must be a number from 0.1 up to 3600; give seconds, such as 5",
        "--log-format 'xml': there is no such choice; choose logfmt or json",
        "--master-image 'a b': it contains a space; give the name of an image without spaces",
        "--namespace 'A': a namespace has at most 63 characters: lowercase letters, digits and hyphens; give the name"
        " of a namespace, such as paddlecloud",
        "--serving-headroom '2.5': it must be a whole number from 0 up to 100000, or auto; give a number of pods,"
        " such as 2, or auto",
    ]


def test_the_quotas_are_read_from_the_file(tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text("blue: {pods: 2}\n")
    made = read_settings(ControllerSettings, {"queues": str(queues)})
    assert made.limits.quotas == ()
    assert made.read_limits().quotas == (Quota("blue", (("pods", 2),)),)
    assert made.read_limits().serving.grace_s == 2.0


def test_headroom_is_learned_only_if_that_is_asked_for() -> None:
    auto = {"serving_headroom": "auto"}
    given: list[dict[str, str]] = [{}, {"serving_slo": "50"}, auto, {**auto, "serving_slo": "50"}]
    limits = [read_settings(ControllerSettings, one).limits for one in given]
    assert [(one.serving.headroom, one.serving.slo) for one in limits] == [(0, 0.0), (0, 0.0), (0, 20.0), (0, 50.0)]


def test_a_plan_has_the_limits_of_the_controller_without_its_patience() -> None:
    given = {"max_load_desired": "0.9", "serving_headroom": "3", "consolidate_after_s": "60"}
    limits = read_settings(PlanSettings, {**given, "filename": ["now.yaml"]}).limits
    assert limits == replace(
        read_settings(ControllerSettings, given).limits,
        serving=replace(read_settings(ControllerSettings, given).limits.serving, grace_s=0.0, untried_s=0.0),
    )
