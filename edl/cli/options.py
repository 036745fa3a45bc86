"""Makes options of the command line from the flags that `edl.settings` declares.

typer reads the signature of a function; here the signature is made from a settings class. Every value reaches the
settings class as text, and the class checks all of them at once. docs/design/code.md says why.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edl.cli.interrupts import raise_on_interrupt
from edl.errors import ConfigError
from edl.settings.commands import Command, load, settings_of
from edl.settings.flags import Declaration, Settings, declarations, read_settings


def add_command(app: typer.Typer, command: Command) -> None:
    """Add a command with the options that its settings class declares."""
    flags = declarations(settings_of(command))
    app.command(command.name.split()[-1], help=command.summary, epilog=_epilog(command), cls=_command_class(flags))(
        _function(command, [_parameter(flag, is_enforced=flag.is_required) for flag in flags])
    )


def add_group(app: typer.Typer, command: Command) -> None:
    """Add a command that runs if none of its subcommands is named."""
    # The settings class reports a missing flag; typer would report it even if a subcommand is called.
    parameters = [_parameter(flag, is_enforced=False) for flag in declarations(settings_of(command))]
    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    app.callback(invoke_without_command=True, help=command.summary, epilog=_epilog(command))(
        _function(command, [context, *parameters])
    )


def _function(command: Command, parameters: list[Parameter]) -> Callable[..., None]:
    def run(**given: Any) -> None:  # noqa: ANN401 - texts, lists, switches
        context: typer.Context | None = given.pop("context", None)
        if context is not None and context.invoked_subcommand is not None:
            return
        settings: Settings = read_settings(settings_of(command), given)
        function = load(command.run)
        raise_on_interrupt()
        raise typer.Exit(function(settings) or 0)

    vars(run)["__signature__"] = Signature(parameters)
    return run


def _parameter(flag: Declaration, *, is_enforced: bool) -> Parameter:
    """The parameter that typer makes an option or an argument of."""
    about = flag.flag.help if flag.flag.choices else flag.meaning  # the choices are looked up when help is printed
    details: dict[str, Any] = {
        "envvar": list(flag.variables),
        "metavar": None if flag.is_switch else flag.metavar,
        "help": f"{about} Required." if flag.is_required and not is_enforced else about,
        "show_default": flag.flag.unset or bool(flag.default),
    }
    if flag.flag.complete:
        details["autocompletion"] = _completion(flag.flag.complete)
    option: Any = typer.Argument(**details) if flag.flag.is_positional else typer.Option(*flag.spellings, **details)
    text: Any = bool if flag.is_switch else list[str] | None if flag.is_repeatable else str | None
    default = Parameter.empty if is_enforced else False if flag.is_switch else flag.default or None
    return Parameter(flag.field, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[text, option])


def _completion(place: str) -> Callable[[typer.Context, str], list[str]]:
    """Make the function that typer calls while a shell completes a value."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        found: list[str] = load(place)(ctx.params, incomplete)
        return found

    return complete


def _epilog(command: Command) -> str | None:
    return f"Exit codes: {command.exit_codes}." if command.exit_codes else None


def _command_class(flags: tuple[Declaration, ...]) -> type[TyperCommand]:
    """A command that reports a missing value as a wrong one, and lists run-time choices in its help text."""
    known = {flag.field: flag for flag in flags}

    class DeclaredCommand(TyperCommand):
        def parse_args(self, *arguments: Any) -> list[str]:  # noqa: ANN401 - typer does not export the types
            try:
                return super().parse_args(*arguments)
            except typer.BadParameter as error:
                flag = known.get(getattr(error.param, "name", None) or "")
                if flag is None or error.message:
                    raise
                raise ConfigError(flag.missing) from error  # typer's error has no message if a value is missing

        def format_help(self, *arguments: Any) -> None:  # noqa: ANN401 - typer does not export the types
            for option in self.params:
                flag = known.get(option.name or "")
                if flag is not None and flag.flag.choices:
                    vars(option)["help"] = flag.meaning
            super().format_help(*arguments)

    return DeclaredCommand
