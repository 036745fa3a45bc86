"""Options made of declarations, with a settings class of the tests: every spelling, every variable, every kind."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from edl.cli.options import add_command, add_group
from edl.errors import ConfigError
from edl.settings.commands import Command
from edl.settings.flags import Flag, Settings

RUNNER = CliRunner()
SEEN: list[Settings] = []


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Everything(Settings):
    target: Annotated[str, Flag("Where to.", metavar="TARGET", remedy="give a target", is_positional=True)]
    filename: Annotated[tuple[str, ...], Flag("A file.", metavar="FILE", remedy="give a file", short="f")] = ()
    wait_s: Annotated[float, Field(ge=0, le=9), Flag("Wait.", metavar="SECONDS", remedy="give seconds")] = 1.5
    colour: Annotated[Colour, Flag("Colour.", short="c")] = Colour.RED
    level: Annotated[Literal["low", "high"], Flag("Level.")] = "low"
    folder: Annotated[Path | None, Flag("Folder.", metavar="DIR", remedy="give a folder", unset="none")] = None
    kind: Annotated[str, Flag("Kind.", metavar="KIND", remedy="give a kind", choices=lambda: ("a", "b", "c"))] = ""
    once: Annotated[bool, Flag("Once.")] = False
    hidden: int = 7


class Group(Settings):
    needed: Annotated[str, Flag("Needed.", metavar="TEXT", remedy="give a text")]


def record(settings: Settings) -> int:
    SEEN.append(settings)
    return 3


def a_typer() -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None)


HERE = "tests.cli.test_options"
TOOL = Command("tool", "Do everything.", f"{HERE}:Everything", f"{HERE}:record", "3 recorded")
BASE = Command("base", "Do it.", f"{HERE}:Group", f"{HERE}:record")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setattr("edl.cli.options.load", lambda _: record)
    monkeypatch.setattr("edl.cli.options.settings_of", lambda command: Group if command is BASE else Everything)
    SEEN.clear()
    made = a_typer()
    add_command(made, TOOL)
    return made


def seen(app: typer.Typer, *words: str, **variables: str) -> Everything:
    result = RUNNER.invoke(app, words, env=variables)
    assert result.exit_code == 3, result.output
    (settings,) = SEEN
    assert isinstance(settings, Everything)
    return settings


def test_a_command_without_options_has_the_declared_defaults(tool: typer.Typer) -> None:
    assert seen(tool, "here") == Everything(target="here")


def test_options_and_short_forms_are_read(tool: typer.Typer) -> None:
    words = ("-f", "a,b", "--filename", "[c]", "-f", "-", "--wait-s", "2", "-c", "blue", "--level", "high", "--once")
    assert seen(tool, "here", *words, "--folder", "d", "--kind", "b") == Everything(
        target="here", filename=("a,b", "[c]", "-"), wait_s=2, colour=Colour.BLUE, level="high", once=True,
        folder=Path("d"), kind="b",
    )  # fmt: skip


def test_every_flag_and_argument_is_an_environment_variable(tool: typer.Typer) -> None:
    long = {"EDL_TARGET": "here", "EDL_FILENAME": "a b", "EDL_WAIT_S": "2", "EDL_COLOUR": "blue", "EDL_LEVEL": "high",
            "EDL_FOLDER": "d", "EDL_KIND": "b", "EDL_ONCE": "1"}  # fmt: skip
    assert seen(tool, **long) == Everything(
        target="here", filename=("a", "b"), wait_s=2, colour=Colour.BLUE, level="high", once=True,
        folder=Path("d"), kind="b",
    )  # fmt: skip


def test_a_short_form_is_an_environment_variable_and_the_long_one_wins(tool: typer.Typer) -> None:
    assert seen(tool, "here", EDL_F="a").filename == ("a",)
    SEEN.clear()
    assert seen(tool, "here", EDL_F="a", EDL_FILENAME="b").filename == ("b",)


def test_the_command_line_wins_over_the_environment(tool: typer.Typer) -> None:
    assert seen(tool, "here", "--wait-s", "3", EDL_WAIT_S="2").wait_s == 3


def test_an_empty_variable_counts_as_unset(tool: typer.Typer) -> None:
    assert seen(tool, "here", EDL_WAIT_S="", EDL_FILENAME="", EDL_FOLDER="") == Everything(target="here")


def test_a_field_without_a_flag_is_no_option(tool: typer.Typer) -> None:
    result = RUNNER.invoke(tool, ["here", "--hidden", "8"])
    assert result.exit_code == 2
    assert "No such option: --hidden" in result.output


def test_wrong_values_are_reported_together(tool: typer.Typer) -> None:
    result = RUNNER.invoke(tool, ["here", "--wait-s", "10", "-c", "green"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).splitlines() == [
        "--wait-s '10': it must be a number from 0 up to 9; give seconds",
        "--colour 'green': there is no such choice; choose red or blue",
    ]
    assert not SEEN


def test_help_shows_what_is_declared(tool: typer.Typer) -> None:
    text = " ".join(RUNNER.invoke(tool, ["--help"]).output.split())
    for part in (
        "Do everything.",
        "-f, --filename FILE A file. [env var: EDL_FILENAME, EDL_F]",
        "--wait-s SECONDS Wait. A number from 0 up to 9. [env var: EDL_WAIT_S; default: 1.5]",
        "-c, --colour red|blue Colour. [env var: EDL_COLOUR, EDL_C; default: red]",
        "--level low|high Level. [env var: EDL_LEVEL; default: low]",
        "--folder DIR Folder. [env var: EDL_FOLDER; default: (none)]",
        "--kind KIND Kind. Choose a, b or c. [env var: EDL_KIND]",
        "--once Once. [env var: EDL_ONCE]",
        "Exit codes: 3 recorded.",
    ):
        assert part in text


def test_a_missing_argument_is_reported_with_its_remedy(tool: typer.Typer) -> None:
    result = RUNNER.invoke(tool, [])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == "TARGET is missing; give a target"


@pytest.mark.usefixtures("tool")
def test_a_group_demands_its_required_flags_only_without_a_subcommand() -> None:
    group = a_typer()
    add_group(group, BASE)
    add_command(group, TOOL)
    assert RUNNER.invoke(group, ["tool", "here"]).exit_code == 3
    alone = RUNNER.invoke(group, [])
    assert isinstance(alone.exception, ConfigError)
    assert str(alone.exception) == "--needed is missing; give a text"
    assert RUNNER.invoke(group, ["--needed", "x"]).exit_code == 3
    assert "Needed. Required." in RUNNER.invoke(group, ["--help"]).output
