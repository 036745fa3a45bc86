"""The flags of every command, each declared once: one file with one settings class for each command.

A flag is a pydantic field (type, bounds, default) with a `Flag` beside it (help, metavar, remedy). The option of the
command line, the environment variable, the help text, the error message and the row in docs/reference/commands.md are
derived from it. Start with `flags.py`, then read `plan.py` as an example. `commands.py` lists the commands, and
docs/how-to/add-a-flag.md shows how to add a flag.

This package may import `model`, `controller`, `observability`, `kube` and `master`; `processes`, `install` and `cli`
import it. It never imports typer: `edl.cli.options` makes options of flags.
"""
