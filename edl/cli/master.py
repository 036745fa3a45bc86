"""The commands of the data master: run one, ask one, prove what one did.

What holds for `edl.cli.main` holds here: each command imports what it needs when it runs.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from edl.errors import ConfigError

with suppress(ModuleNotFoundError):  # edl.cli.main says what to install
    import typer

FAILED, USAGE = 1, 2


class PlanOutput(StrEnum):
    """Forms of a plan."""

    TABLE = "table"
    JSON = "json"


class AuditOutput(StrEnum):
    """Forms of an audit."""

    TEXT = "text"
    JSON = "json"


class OnLedgerLost(StrEnum):
    """What a master does about an empty journal although the job has made progress."""

    FAIL = "Fail"
    RESTART_EPOCH = "RestartEpoch"


def commands() -> typer.Typer:
    """`edl master`, which runs one, and what is asked of a running one."""
    masters = typer.Typer(rich_markup_mode=None)
    masters.callback(invoke_without_command=True)(master)
    masters.command()(status)
    return masters


def master(
    context: typer.Context,
    *,
    listen: Annotated[
        str, typer.Option(envvar="EDL_LISTEN", metavar="HOST:PORT", help="Where trainers find the master.")
    ] = "0.0.0.0:8080",
    journal: Annotated[
        Path | None, typer.Option(envvar="EDL_JOURNAL", metavar="DIR", help="Where the journal lives.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar="EDL_TOKEN_FILE", metavar="FILE", help="What trainers must show.")
    ] = None,
    controller_token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="EDL_CONTROLLER_TOKEN_FILE",
            metavar="FILE",
            help="What the controller must show; without it the roster is closed.",
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(envvar="EDL_DATASET", metavar="JSON", help="As POST /v1/dataset takes it.")
    ] = None,
    lease_ttl_s: Annotated[
        float, typer.Option(envvar="EDL_LEASE_TTL_S", metavar="SECONDS", help="Silence after which a lease ends.")
    ] = 30.0,
    tls_cert: Annotated[
        Path | None, typer.Option(envvar="EDL_TLS_CERT", metavar="FILE", help="PEM; with it https is spoken.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(envvar="EDL_TLS_KEY", metavar="FILE", help="PEM.")] = None,
    expect_progress: Annotated[
        str | None,
        typer.Option(
            envvar="EDL_EXPECT_PROGRESS",
            metavar="EPOCH:DONE",
            help="How far the job was; an empty journal is then refused as lost.",
        ),
    ] = None,
    on_ledger_lost: Annotated[
        OnLedgerLost, typer.Option(envvar="EDL_ON_LEDGER_LOST", help="What to do about a lost journal.")
    ] = OnLedgerLost.FAIL,
) -> None:
    """Run the data master of one job: it leases ranges of the data set to trainers, and counts each once."""
    if context.invoked_subcommand is not None:
        return
    import asyncio

    from edl.observability.logs import configure
    from edl.processes.master import MasterFlags, serve_master

    if journal is None or token_file is None:
        raise ConfigError("edl master needs --journal DIR and --token-file FILE; see edl master --help")
    flags = MasterFlags(
        listen,
        journal,
        token_file,
        controller_token_file,
        dataset,
        lease_ttl_s,
        tls_cert,
        tls_key,
        expect_progress,
        on_ledger_lost.value,
    )
    configure("info", "logfmt")
    raise typer.Exit(asyncio.run(serve_master(flags)))


def status(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of the master, such as http://127.0.0.1:8080.")],
    token_file: Annotated[Path, typer.Option(envvar="EDL_TOKEN_FILE", metavar="FILE", help="With the job's token.")],
    output: Annotated[PlanOutput, typer.Option("-o", "--output", envvar=["EDL_OUTPUT", "EDL_O"])] = PlanOutput.TABLE,
) -> None:
    """Print what a master holds."""
    import json

    from edl.master.status_client import fetch_status, status_text
    from edl.processes.master import read_token

    found = fetch_status(url, read_token(token_file, "--token-file").decode(errors="replace"))
    typer.echo(json.dumps(found, indent=2) if output is PlanOutput.JSON else status_text(found))


def audit(
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL", help="The folder of a journal, or a copy of it.")],
    output: Annotated[AuditOutput, typer.Option("-o", "--output", envvar=["EDL_OUTPUT", "EDL_O"])] = AuditOutput.TEXT,
) -> None:
    """Prove from a journal that every position of every epoch was done once; 1 if a rule is broken."""
    from edl.master.journal_audit import audit as follow
    from edl.master.journal_audit import audit_json, audit_text

    report = follow(journal)
    typer.echo(audit_json(report) if output is AuditOutput.JSON else audit_text(report))
    raise typer.Exit(FAILED if report.problems else 0)
