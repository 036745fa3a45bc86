"""Every command as it is declared: complete flags, and functions that exist."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from edl.settings.commands import COMMANDS, Command, load, settings_of
from edl.settings.flags import Declaration, declarations

FLAGS = [(command.name, flag) for command in COMMANDS for flag in declarations(settings_of(command))]
by_name = pytest.mark.parametrize(("command", "flag"), FLAGS, ids=[f"{name} {flag.name}" for name, flag in FLAGS])


@pytest.mark.parametrize("command", COMMANDS, ids=[one.name for one in COMMANDS])
def test_the_function_of_a_command_takes_its_settings(command: Command) -> None:
    hints = get_type_hints(load(command.run))
    hints.pop("return")
    assert list(hints.values()) == [settings_of(command)]


@by_name
def test_a_declaration_is_complete(command: str, flag: Declaration) -> None:
    assert flag.flag.help.endswith("."), command
    assert flag.is_switch or flag.metavar
    assert flag.is_switch or flag.choices or flag.flag.choices or flag.flag.remedy
    assert flag.is_switch or flag.is_required or bool(flag.default) != bool(flag.flag.unset)


@by_name
def test_a_default_passes_the_check_of_its_own_flag(command: str, flag: Declaration) -> None:
    settings = settings_of(next(one for one in COMMANDS if one.name == command))
    if flag.default:
        checked = settings.__pydantic_validator__.validate_assignment(
            settings.model_construct(), flag.field, flag.default
        )
        assert getattr(checked, flag.field) == flag.info.default


def test_no_command_has_one_variable_for_two_flags() -> None:
    for command in COMMANDS:
        variables = [name for flag in declarations(settings_of(command)) for name in flag.variables]
        assert len(variables) == len(set(variables)), command.name
