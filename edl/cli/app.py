"""Assembles the commands. A command is imported when it is called, so `edl --help` does not wait for the planner."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edl import __version__
from edl.settings.commands import ABOUT, COMMANDS

_TOP_LEVEL = {command.name: command for command in COMMANDS if " " not in command.name}


def app() -> typer.Typer:
    """The application `edl`."""
    made = _typer(name="edl", cls=_Commands, help=ABOUT, no_args_is_help=True, add_completion=True)
    made.callback()(_root)
    return made


class _Commands(TyperGroup):
    """The commands, in the order of `COMMANDS`; each is imported when it is called."""

    def list_commands(self, _: Any) -> list[str]:  # noqa: ANN401 - typer does not export the type of its contexts
        return list(_TOP_LEVEL)

    def get_command(self, _: Any, cmd_name: str) -> Any:  # noqa: ANN401 - nor that of its commands
        return _make_command(cmd_name) if cmd_name in _TOP_LEVEL else None

    def format_commands(self, _: Any, formatter: Any) -> None:  # noqa: ANN401 - nor that of its formatters
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.summary) for command in _TOP_LEVEL.values()])


def _make_command(name: str) -> Any:  # noqa: ANN401 - typer does not export the type of its commands
    from edl.cli.options import add_command, add_group  # noqa: PLC0415 - pydantic, which `edl --help` does not need

    made, command = _typer(name=name), _TOP_LEVEL[name]
    subcommands = [one for one in COMMANDS if one.name.startswith(f"{name} ")]
    (add_group if subcommands else add_command)(made, command)
    for subcommand in subcommands:
        add_command(made, subcommand)
    return typer.main.get_command(made)


def _typer(**arguments: Any) -> typer.Typer:  # noqa: ANN401 - passed on
    usual = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
    return typer.Typer(**(usual | arguments))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edl {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
