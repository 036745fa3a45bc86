"""The page docs/reference/commands.md: every command with its flags, from the declarations in `edl.settings`.

`python -m edl.install.reference` writes it, and a test compares it with the declarations.
"""

from __future__ import annotations

from collections.abc import Iterator

from edl.settings.commands import COMMANDS, Command, settings_of
from edl.settings.flags import Declaration, declarations

COMMANDS_PAGE = "docs/reference/commands.md"

_HEAD = """# Commands and flags

<!-- Written by `make generate` from the declarations in edl/settings; changes here are lost. -->

- Every flag and every argument is also an environment variable, `EDL_<FLAG>`; a flag with a short form has a short
  variable as well. The command line wins over the environment, and the long variable wins over the short one.
- An empty variable counts as unset. A switch takes `1` or `true`. A repeatable flag takes several values separated by
  spaces.
- Wrong values are reported together on stderr: the flag, the value, the rule, and what to give instead.
- Exit codes: 0 done, 1 failed, 2 wrong usage or unreadable input. A server that SIGINT or SIGTERM ends exits with 0.
- stdout holds only the answer; warnings and errors are on stderr.
- `edl --help` lists the commands, `edl COMMAND --help` the flags of one, and `edl --version` prints the version.
"""


def commands_page() -> str:
    """The text of the page."""
    return "\n".join([_HEAD, *("\n".join(_section(command)) for command in COMMANDS)])


def _section(command: Command) -> Iterator[str]:
    flags = declarations(settings_of(command))
    arguments = "".join(f" {flag.metavar}" for flag in flags if flag.flag.is_positional)
    options = " [OPTIONS]" if any(not flag.flag.is_positional for flag in flags) else ""
    yield f"## `edl {command.name}`"
    yield ""
    yield command.summary
    yield ""
    yield f"```sh\nedl {command.name}{options}{arguments}\n```"
    yield ""
    if flags:
        yield "| flag | variable | default | meaning |"
        yield "|---|---|---|---|"
        yield from map(_row, flags)
        yield ""
    if command.exit_codes:
        yield f"Exit codes: {command.exit_codes}."
        yield ""


def _row(flag: Declaration) -> str:
    spellings = flag.spellings or (flag.metavar,)
    names = ", ".join(f"`{spelling}`" for spelling in spellings)
    if not flag.is_switch and flag.spellings:
        names = f"{names[:-1]} {flag.metavar}`"
    variables = ", ".join(f"`{variable}`" for variable in flag.variables)
    default = "required" if flag.is_required else f"`{flag.default}`" if flag.default else flag.flag.unset
    cells = (names, variables, default, flag.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
