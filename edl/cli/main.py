"""The console script `edl`: runs a command and turns an error into a message and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage or unreadable input. A message on stderr names the object, the value, the
rule and the remedy; stdout holds only the answer. An image for trainers has neither typer nor the planner: if a
module is missing, the message names the extra to install.
"""

from __future__ import annotations

import sys
import threading

from edl.cli.exit_codes import FAILED, USAGE
from edl.cli.interrupts import INTERRUPTED, end_at_once_on_interrupt, raise_on_interrupt
from edl.errors import ConfigError, EdlError
from edl.printable import printable


def main() -> None:
    """Run the command that `sys.argv` names; it ends with SystemExit."""
    try:
        _run()
    except SystemExit as end:
        if threading.active_count() > 1:
            from edl.cli.endings import end_beside_decision  # noqa: PLC0415 - most commands have one thread

            end_beside_decision(end.code)
        raise


def _run() -> None:
    end_at_once_on_interrupt()
    try:
        from edl.cli.app import app  # noqa: PLC0415 - typer may be missing

        app()()
    except EdlError as error:
        _exit(str(error), USAGE if isinstance(error, ConfigError) else FAILED)
    except KeyboardInterrupt:  # before the command handles the signal
        raise SystemExit(INTERRUPTED) from None
    except ModuleNotFoundError as error:
        if (error.name or "edl").partition(".")[0] == "edl":
            raise
        _exit(
            f"the Python module {error.name} is not installed, and this command needs it; install edl with its extra"
            " `controller`; in a checkout: pip install '.[controller]'",
            USAGE,
        )
    finally:
        raise_on_interrupt()


def _exit(message: str, code: int) -> None:
    sys.stderr.write("".join(f"edl: {line}\n" for line in printable(message).splitlines()))
    raise SystemExit(code)
