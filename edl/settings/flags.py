"""A flag of the command line: what is declared, and everything that is derived from the declaration.

A settings class declares each flag as a pydantic field, with a `Flag` in its annotation:

    interval_s: Annotated[
        float,
        Field(ge=0.1, le=3600, allow_inf_nan=False),
        Flag("Longest time between two plans.", metavar="SECONDS", remedy="give seconds, such as 5"),
    ] = 5.0

This makes the option `--interval-s`, the variable `EDL_INTERVAL_S`, the help text, the row of the reference page and
the message `--interval-s 'soon': it must be a number from 0.1 up to 3600; give seconds, such as 5`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from edl.errors import ConfigError

_COMPLETE = "complete_message"
_LONGEST_QUOTE = 100
_BOUNDS = {"ge": "from", "gt": "above", "le": "up to", "lt": "below"}
_NUMBERS = {int: "a whole number", float: "a number"}

_Settings = TypeVar("_Settings", bound="Settings")


class Settings(BaseModel):
    """The values of a command's flags; each field with a `Flag` is a flag, and its name is the flag's name."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


@dataclass(frozen=True, slots=True)
class Flag:
    """The texts about a flag; type, bounds and default are those of the field.

    Attributes:
        help: what the flag does: one or two sentences without the default, the bounds and the choices.
        metavar: stands for the value in the help text; not needed for a switch or a choice.
        remedy: what to give instead of a wrong value, such as `give seconds, such as 5`; not needed for a choice.
        short: the letter of a short form, without the hyphen.
        unset: what holds if the flag is not given and its default is no fixed value.
        choices: the values that the flag takes, if they are known only at run time.
        is_positional: True for an argument: it is given by its position, not by its name.
        complete: `module:function` that offers values to the shell, from the values of the other flags and what was
            typed so far; it is called only while a shell completes.
    """

    help: str
    metavar: str = ""
    remedy: str = ""
    short: str = ""
    unset: str = ""
    choices: Callable[[], Sequence[str]] | None = None
    is_positional: bool = False
    complete: str = ""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A field and its `Flag`, and what is derived from them.

    Attributes:
        field: the name of the field, such as `interval_s`.
    """

    field: str
    flag: Flag
    info: FieldInfo

    @property
    def name(self) -> str:
        """The flag as messages name it: `--interval-s`, or the metavar of an argument."""
        return self.flag.metavar if self.flag.is_positional else "--" + self._word.replace("_", "-")

    @property
    def _word(self) -> str:
        """The field without the underscore that a keyword of Python needs: `from_` is the flag `--from`."""
        return self.field.removesuffix("_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling on the command line, the short one first; none for an argument."""
        if self.flag.is_positional:
            return ()
        return (f"-{self.flag.short}", self.name) if self.flag.short else (self.name,)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables, the one that wins first."""
        long = f"EDL_{self._word.upper()}"
        return (long, f"EDL_{self.flag.short.upper()}") if self.flag.short else (long,)

    @property
    def metavar(self) -> str:
        """The placeholder of the value in the help text."""
        return self.flag.metavar or "|".join(self.choices)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a choice; empty for another type and for choices that are known only at run time."""
        annotation: Any = self.info.annotation
        if get_origin(annotation) is Literal:
            return get_args(annotation)
        return tuple(annotation) if isinstance(annotation, type) and issubclass(annotation, StrEnum) else ()

    @property
    def rule(self) -> str:
        """The rule for a number, such as `a number from 0.1 up to 3600`; empty for every other type."""
        annotation: Any = self.info.annotation
        if annotation not in _NUMBERS:
            return ""
        bounds = [
            f"{word} {bound:g}"
            for key, word in _BOUNDS.items()
            for part in self.info.metadata
            if (bound := getattr(part, key, None)) is not None
        ]
        return " ".join([_NUMBERS[annotation], *bounds])

    @property
    def default(self) -> str:
        """The default as text; empty if there is none, or if it is no fixed value."""
        value = self.info.default
        if self.is_required or self.is_switch or value is None or value == ():
            return ""
        return f"{value:g}" if isinstance(value, float) else str(value)

    @property
    def is_required(self) -> bool:
        """True if a value must be given."""
        return self.info.is_required()

    @property
    def is_switch(self) -> bool:
        """True for a flag that takes no value."""
        return self.info.annotation is bool

    @property
    def is_repeatable(self) -> bool:
        """True for a flag that may be given several times."""
        return get_origin(self.info.annotation) is tuple

    @property
    def remedy(self) -> str:
        """The end of an error message: what to give instead of a wrong value."""
        return self.flag.remedy or f"choose {either(self.flag.choices() if self.flag.choices else self.choices)}"

    @property
    def meaning(self) -> str:
        """The help text, with what a number must be, and with the choices that are known only at run time."""
        rule = f"{self.rule[:1].upper()}{self.rule[1:]}." if self.rule else ""
        choices = f"Choose {either(self.flag.choices())}." if self.flag.choices else ""
        return " ".join(filter(None, [self.flag.help, rule, choices]))

    @property
    def missing(self) -> str:
        """The message if a required value is not given."""
        return f"{self.name} is missing; {self.remedy}"


def declarations(settings: type[Settings]) -> tuple[Declaration, ...]:
    """The flags of a settings class: arguments, then required flags, then the rest, each part sorted by name."""
    found = [
        Declaration(name, flag, info)
        for name, info in settings.model_fields.items()
        for flag in info.metadata
        if isinstance(flag, Flag)
    ]
    return tuple(sorted(found, key=lambda one: (not one.flag.is_positional, not one.is_required, one.name)))


def read_settings(settings: type[_Settings], given: Mapping[str, Any]) -> _Settings:
    """Check every value that the command line and the environment gave.

    Args:
        settings: the class that declares the flags.
        given: field -> text, or the texts of a repeatable flag; None if it was not given.

    Raises:
        ConfigError: one line for each value that cannot be used, with flag, value, rule and remedy.
    """
    try:
        return settings.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        known = {one.field: one for one in declarations(settings)}
        raise ConfigError("\n".join(_message(entry, known) for entry in error.errors())) from error


def checked_by(check: Callable[[str], object]) -> Callable[[str], str]:
    """Make a validator that calls `check` for a text that is not empty.

    `check` raises a ConfigError whose message is complete: it names the flag, the value, the rule and the remedy.
    """

    def validate(value: str) -> str:
        try:
            if value:
                check(value)
        except ConfigError as error:
            raise PydanticCustomError(_COMPLETE, "{message}", {"message": str(error)}) from error
        return value

    return validate


def either(words: Sequence[str]) -> str:
    """Join texts to a choice: `debug, info or warn`."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _message(entry: ErrorDetails, known: Mapping[str, Declaration]) -> str:
    if not entry["loc"] or entry["type"] == _COMPLETE:
        return entry["msg"].removeprefix("Value error, ")
    flag = known[str(entry["loc"][0])]
    if entry["type"] == "missing":
        return flag.missing
    value = repr(str(entry["input"])[:_LONGEST_QUOTE])
    if entry["type"] == "value_error":
        return f"{flag.name} {value}: {entry['ctx']['error']}; {flag.remedy}"
    rule = f"it must be {flag.rule}" if flag.rule else "there is no such choice"
    return f"{flag.name} {value}: {rule}; {flag.remedy}"
