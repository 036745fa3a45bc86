"""`edl audit`."""

from __future__ import annotations

import typer

from edl.cli.exit_codes import FAILED
from edl.master import journal_audit
from edl.settings.audit import AuditSettings
from edl.settings.shared import TextOutput


def audit(settings: AuditSettings) -> int:
    """Print what a journal proves: whether every position of every epoch was counted once.

    Returns:
        1 if a rule is broken, else 0.

    Raises:
        ConfigError: there is no readable journal.
    """
    report = journal_audit.audit(settings.journal)
    as_json = settings.output is TextOutput.JSON
    typer.echo(journal_audit.audit_json(report) if as_json else journal_audit.audit_text(report))
    return FAILED if report.problems else 0
