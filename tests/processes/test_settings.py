"""Every flag judged before anything starts, and the command line around it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.processes.settings import ControllerSettings, read_settings


def test_the_defaults_are_those_of_the_interface() -> None:
    made = read_settings({})
    assert (made.namespace, made.listen, made.log_level, made.log_format) == (
        "paddlecloud", "0.0.0.0:8080", "info", "logfmt"
    )  # fmt: skip
    assert (made.interval_s, made.max_load_desired, made.serving_headroom) == (5.0, 1.0, 0)
    assert (made.limits.serving_grace_s, made.limits.consolidate_after_s) == (2.0, 0.0)


def test_text_from_the_command_line_becomes_values() -> None:
    made = read_settings(
        {"interval_s": "2.5", "serving_headroom": "3", "max_load_desired": "0.97", "watch_namespace": ["b", "a", "b"]}
    )
    assert made.interval_s == 2.5
    assert (made.limits.serving_headroom, made.limits.max_load_desired) == (3, 0.97)
    assert made.watch_namespace == ("b", "a")
    assert read_settings({"consolidate_after_s": "1800"}).limits.consolidate_after_s == 1800.0


def test_what_was_not_given_is_left_to_the_default() -> None:
    assert read_settings({"record": None, "key_file": None, "watch_namespace": None}) == ControllerSettings()


@pytest.mark.parametrize("word", ["debug", "DEBUG", "dbug", "warning", "eror", "critical"])
def test_levels_are_known_by_their_other_names(word: str) -> None:
    assert read_settings({"log_level": word}).log_level in {"debug", "warn", "error", "crit"}


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
def test_a_bad_value_is_answered_with_flag_value_rule_and_remedy(flag: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings({flag: value})
    said = str(caught.value)
    assert said.startswith("--" + flag.replace("_", "-"))
    assert str(value if isinstance(value, str) else value[0])[:20] in said
    assert "; " in said


def test_every_bad_value_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings({"interval_s": "x", "listen": "y"})
    assert len(str(caught.value).splitlines()) == 2


def controller(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("edl")), "controller", *flags]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("EDL_", "KUBE"))}
    return subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_bad_flag_ends_the_command_with_2_and_nothing_on_stdout() -> None:
    ended = controller("--interval-s", "soon")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "--interval-s 'soon'" in ended.stderr


def test_every_flag_is_an_environment_variable_too() -> None:
    bad = {"EDL_INTERVAL_S": "soon", "EDL_LISTEN": "x", "EDL_WATCH_NAMESPACE": "A B"}
    ended = controller(**bad)
    assert ended.returncode == 2
    for flag in ("--interval-s", "--listen", "--watch-namespace"):
        assert flag in ended.stderr


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--kubeconfig", "/nowhere/config", "/nowhere/config"),
        ("--policy", "guess", "guess"),
        ("--record", "/proc/edl/records", "--record"),
    ],
)
def test_what_cannot_be_used_ends_the_command_with_2(flag: str, value: str, said: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("{}")
    ended = controller(flag, value, KUBECONFIG=str(kubeconfig))
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
