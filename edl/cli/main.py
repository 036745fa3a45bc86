"""The command line: parse, build, call.

Each command imports what it needs when it runs: `edl --help` must not wait for a solver, and a trainer image has
neither typer nor the rest, so that there the command says what to install. A message on stderr names the object, the
value, the rule and the remedy; stdout holds only the answer. Exit codes: 0 done, 1 failed, 2 usage.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from edl import __version__
from edl.cli import master as cli_master
from edl.cli.master import FAILED, USAGE, PlanOutput
from edl.errors import ConfigError, EdlError

try:
    import typer
    import typer.core
except ModuleNotFoundError as error:
    _missing: ModuleNotFoundError | None = error
else:
    _missing = None

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edl.model.cluster import ClusterSnapshot
    from edl.model.plan import Limits


if _missing is None:  # options that `plan` and `explain` share
    MaxLoadDesired = Annotated[
        str, typer.Option(envvar="EDL_MAX_LOAD_DESIRED", metavar="SHARE", help="As the controller takes it.")
    ]
    ServingHeadroom = Annotated[
        str, typer.Option(envvar="EDL_SERVING_HEADROOM", metavar="PODS", help="As the controller takes it.")
    ]
    Queues = Annotated[
        str,
        typer.Option(envvar="EDL_QUEUES", metavar="FILE", help="Quotas of the queues, as the controller takes them."),
    ]


class TextOutput(StrEnum):
    """Forms of an explanation."""

    TEXT = "text"
    JSON = "json"


def main() -> None:
    """Run the command that `sys.argv` names; exits by SystemExit."""
    if _missing is not None:
        _leave(_remedy(_missing), USAGE)
    try:
        _commands()()
    except EdlError as error:
        _leave(str(error), USAGE if isinstance(error, ConfigError) else FAILED)
    except ModuleNotFoundError as error:
        if (error.name or "edl").partition(".")[0] == "edl":
            raise
        _leave(_remedy(error), USAGE)


def plan(
    *,
    filenames: Annotated[
        list[str],
        typer.Option(
            "-f",
            "--filename",
            envvar=["EDL_FILENAME", "EDL_F"],
            metavar="FILE",
            help="Saved objects: JSON, YAML or Lists; - is standard input. Repeat it for more; a later file replaces "
            "objects of an earlier one.",
        ),
    ],
    now: Annotated[
        str,
        typer.Option(envvar="EDL_NOW", metavar="RFC3339", help="When it is; default: the newest time in the input."),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(
            envvar="EDL_POLICY",
            metavar="NAME",
            help="How to share: {policies}; default: utility once the speed of an "
            "admitted job is known, else maxmin.",
        ),
    ] = "",
    max_load_desired: MaxLoadDesired = "1.0",
    serving_headroom: ServingHeadroom = "0",
    consolidate_after_s: Annotated[
        str, typer.Option(envvar="EDL_CONSOLIDATE_AFTER_S", metavar="SECONDS", help="As the controller takes it.")
    ] = "0",
    queues: Queues = "",
    output: Annotated[PlanOutput, typer.Option("-o", "--output", envvar=["EDL_OUTPUT", "EDL_O"])] = PlanOutput.TABLE,
) -> None:
    """Print the decision for a saved cluster, and what later files change in it; no cluster is needed."""
    from edl.controller.planning import compare_snapshots, plan_snapshot
    from edl.explain.plan_table import plan_json, print_plan
    from edl.kube.queue_file import unmatched
    from edl.kube.snapshot_files import read_snapshot_files
    from edl.planner.consolidation import reason_to_wait

    limits = _limits(max_load_desired, serving_headroom, queues, consolidate_after_s)
    saved, now_s = read_snapshot_files(filenames), _seconds(now)
    snapshot, left_out = saved.snapshot(now_s)
    for one in (*left_out, *saved.dropped(), *unmatched(limits.quotas, snapshot.jobs, queues)):
        typer.echo(f"edl: {one}", err=True)
    decided = plan_snapshot(snapshot, policy, limits)
    changes = None
    if saved.base is not None:
        before = saved.base.snapshot(now_s)[0]
        changes = compare_snapshots(before, snapshot, decided, limits, saved.first_name)
    if limits.consolidate_after_s and not any(decision.moves for decision in decided.decisions):
        why = reason_to_wait(snapshot, decided, limits.consolidate_after_s) or "no trainer would find room by it"
        typer.echo(f"edl: no pserver moves: {why}", err=True)
    if output is PlanOutput.JSON:
        typer.echo(plan_json(decided, changes))
    else:
        print_plan(decided, changes=changes)


def controller(
    *,  # every flag is given as text: the settings judge it, and answer all that is wrong at once
    kubeconfig: Annotated[
        str,
        typer.Option(
            envvar="EDL_KUBECONFIG", metavar="FILE", help="Default: as kubectl, then the pod's own account."
        ),
    ] = "",
    namespace: Annotated[
        str, typer.Option(envvar="EDL_NAMESPACE", metavar="NS", help="Where the Lease stands.")
    ] = "paddlecloud",
    listen: Annotated[
        str, typer.Option(envvar="EDL_LISTEN", metavar="HOST:PORT", help="For /metrics, /healthz and /readyz.")
    ] = "0.0.0.0:8080",
    log_level: Annotated[
        str, typer.Option(envvar="EDL_LOG_LEVEL", metavar="LEVEL", help="debug, info, warn, error or crit.")
    ] = "info",
    log_format: Annotated[
        str, typer.Option(envvar="EDL_LOG_FORMAT", metavar="FORM", help="logfmt or json, on stderr.")
    ] = "logfmt",
    interval_s: Annotated[
        str, typer.Option(envvar="EDL_INTERVAL_S", metavar="SECONDS", help="Longest time between two decisions.")
    ] = "5",
    max_load_desired: Annotated[
        str,
        typer.Option(
            envvar="EDL_MAX_LOAD_DESIRED", metavar="SHARE", help="Training grows up to this part of a total."
        ),
    ] = "1.0",
    serving_headroom: Annotated[
        str, typer.Option(envvar="EDL_SERVING_HEADROOM", metavar="PODS", help="Room kept for so many serving pods.")
    ] = "0",
    consolidate_after_s: Annotated[
        str,
        typer.Option(
            envvar="EDL_CONSOLIDATE_AFTER_S",
            metavar="SECONDS",
            help="After so long without a change move pservers where trainers gain room; 0: never.",
        ),
    ] = "0",
    policy: Annotated[
        str,
        typer.Option(
            envvar="EDL_POLICY",
            metavar="NAME",
            help="How to share: {policies to run}; default: utility once the speed of an "
            "admitted job is known, else maxmin.",
        ),
    ] = "",
    queues: Annotated[
        str | None,
        typer.Option(
            envvar="EDL_QUEUES", metavar="FILE", help="Quotas: QUEUE: {RESOURCE: QUANTITY}; read once, at the start."
        ),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            envvar="EDL_KEY_FILE",
            metavar="FILE",
            help="Key of the masters' tokens; default: $XDG_STATE_HOME/edl/key.",
        ),
    ] = None,
    master_image: Annotated[
        str, typer.Option(envvar="EDL_MASTER_IMAGE", metavar="IMAGE", help="Of masters whose job names none.")
    ] = "",
    watch_namespace: Annotated[
        list[str] | None,
        typer.Option(envvar="EDL_WATCH_NAMESPACE", metavar="NS", help="Only jobs in it; repeat it for more."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", envvar="EDL_ONCE", help="One round, then exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", envvar="EDL_DRY_RUN", help="Print what would be decided; write nothing.")
    ] = False,
    record: Annotated[
        str | None,
        typer.Option(envvar="EDL_RECORD", metavar="DIR", help="Keep a record of each changed decision there."),
    ] = None,
    no_leader_election: Annotated[
        bool,
        typer.Option(
            "--no-leader-election", envvar="EDL_NO_LEADER_ELECTION", help="Write without holding the Lease."
        ),
    ] = False,
) -> None:
    """Run the controller: resize every TrainingJob of a cluster, forever."""
    flags = locals()
    import asyncio

    from edl.observability.logs import configure
    from edl.processes.controller import serve
    from edl.processes.settings import read_settings

    settings = read_settings(flags)
    configure(settings.log_level, settings.log_format)
    raise typer.Exit(asyncio.run(serve(settings)))


def explain(
    job: Annotated[str, typer.Argument(envvar="EDL_JOB", metavar="JOB", help="Its name, or NAMESPACE/NAME.")],
    *,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", envvar=["EDL_NAMESPACE", "EDL_N"], metavar="NS", help="Default: any.")
    ] = "",
    kubeconfig: Annotated[
        str,
        typer.Option(
            envvar="EDL_KUBECONFIG", metavar="FILE", help="Default: as kubectl, then the pod's own account."
        ),
    ] = "",
    filenames: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--filename",
            envvar=["EDL_FILENAME", "EDL_F"],
            metavar="FILE",
            help="A saved cluster instead of a live one, as for edl plan; repeat it for more.",
        ),
    ] = None,
    now: Annotated[
        str,
        typer.Option(envvar="EDL_NOW", metavar="RFC3339", help="When a saved cluster was; default: its newest time."),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(
            envvar="EDL_POLICY", metavar="NAME", help="Of the controller: {policies to run}; default: as edl plan."
        ),
    ] = "",
    max_load_desired: MaxLoadDesired = "1.0",
    serving_headroom: ServingHeadroom = "0",
    queues: Queues = "",
    output: Annotated[TextOutput, typer.Option("-o", "--output", envvar=["EDL_OUTPUT", "EDL_O"])] = TextOutput.TEXT,
) -> None:
    """Say why a job has the trainers it has, and what would have to happen for more; reads only."""
    from edl.controller.planning import report_snapshot
    from edl.explain.job_text import find_job, job_report_json, print_job_report
    from edl.explain.plan_table import make_console
    from edl.kube.snapshot_files import read_snapshot_files

    if now and not filenames:
        raise ConfigError(
            f"--now {now!r} is given without -f; a live cluster is explained as it is now: leave it out"
        )
    left_out: Sequence[object]
    if filenames:
        snapshot, left_out = read_snapshot_files(filenames).snapshot(_seconds(now))
    else:
        snapshot, left_out = _look(kubeconfig)
    for one in left_out:
        typer.echo(f"edl: {one}", err=True)
    limits = _limits(max_load_desired, serving_headroom, queues)
    report = report_snapshot(snapshot, find_job(snapshot, job, namespace), policy, limits)
    if output is TextOutput.JSON:
        typer.echo(job_report_json(report, snapshot.observed_at_s))
    else:
        print_job_report(report, snapshot, make_console())


def replay(
    record: Annotated[
        str,
        typer.Argument(
            envvar="EDL_RECORD_FILE", metavar="RECORD", help="A file that --record wrote, or a folder of them."
        ),
    ],
    output: Annotated[PlanOutput, typer.Option("-o", "--output", envvar=["EDL_OUTPUT", "EDL_O"])] = PlanOutput.TABLE,
) -> None:
    """Make a recorded decision again: 0 the same, 1 a different one, 2 no readable record."""
    from edl.explain.plan_table import make_console
    from edl.observability.replay import exit_code, print_replays, replay_all, replays_json

    replays = replay_all(Path(record))
    if output is PlanOutput.JSON:
        typer.echo(replays_json(replays))
    elif len(replays) == 1 and exit_code(replays) == USAGE:
        raise ConfigError(f"{replays[0].file}: {replays[0].problem}")
    else:
        print_replays(replays, make_console())
    raise typer.Exit(exit_code(replays))


def crd() -> None:
    """Print the CustomResourceDefinition of TrainingJob."""
    from edl.install.manifests import crd_yaml

    typer.echo(crd_yaml(), nl=False)


def manifests() -> None:
    """Print everything that installs the controller, in one file."""
    from edl.install.manifests import manifests_yaml

    typer.echo(manifests_yaml(), nl=False)


def _commands() -> typer.Typer:
    """The application; commands are listed in the order of their use."""
    app = typer.Typer(
        name="edl",
        help="Elastic deep learning on Kubernetes: trains in the room your services leave.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for command in (controller, plan, explain, replay, cli_master.audit, crd, manifests):
        app.command(cls=_with_policies())(command)
    app.add_typer(cli_master.commands(), name="master")
    return app


def _with_policies() -> type[typer.core.TyperCommand]:
    """Commands whose help names the policies that there are, and looks for them only when it is read."""

    class WithPolicies(typer.core.TyperCommand):
        def parse_args(self, *args: Any) -> list[str]:  # noqa: ANN401 click's own types are not public here
            try:
                return super().parse_args(*args)
            except typer.BadParameter as error:
                if getattr(error.param, "name", "") == "filenames" and not error.message:
                    error.message = "Put -f before each file: edl plan -f now.yaml"
                raise

        def format_help(self, *args: Any) -> None:  # noqa: ANN401 click's own types are not public here
            from edl.planner.policies.registry import policy_names

            for option in self.params:
                text = getattr(option, "help", None) or ""
                for token, names in (
                    ("{policies}", policy_names()),
                    ("{policies to run}", policy_names(comparisons=False)),
                ):
                    if token in text:
                        vars(option)["help"] = text.replace(token, ", ".join(names))
            super().format_help(*args)

    return WithPolicies


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Elastic deep learning on Kubernetes: trains in the room your services leave."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edl {__version__}")
        raise typer.Exit


def _limits(max_load_desired: str, serving_headroom: str, queues: str, consolidate_after_s: str = "0") -> Limits:
    """The limits of a controller with these flags, judged as it judges them.

    A saved cluster stands still, so that kube-scheduler is not left alone with a waiting pod.
    """
    from edl.kube.queue_file import read_queues
    from edl.processes.settings import read_settings

    flags = {
        "max_load_desired": max_load_desired,
        "serving_headroom": serving_headroom,
        "consolidate_after_s": consolidate_after_s,
    }
    settings = read_settings(flags)
    quotas = read_queues(Path(queues)) if queues else ()
    return replace(settings.limits, serving_grace_s=0.0, quotas=quotas)


def _seconds(now: str) -> float | None:
    from edl.model.times import seconds_of_flag

    return seconds_of_flag("--now", now) if now else None


def _look(kubeconfig: str) -> tuple[ClusterSnapshot, Sequence[object]]:
    import asyncio

    from edl.clock import SystemClock
    from edl.kube.client.session import ApiSession
    from edl.kube.mirror.read_once import look

    async def once() -> tuple[ClusterSnapshot, Sequence[object]]:
        async with await ApiSession.open(kubeconfig) as session:
            return await look(session, SystemClock())

    return asyncio.run(once())


def _remedy(error: ModuleNotFoundError) -> str:
    return (
        f"the module {error.name} is not installed, and this command needs it; install edl with its"
        " extra `controller`; in a checkout of it: pip install '.[controller]'"
    )


def _leave(message: str, code: int) -> None:
    sys.stderr.write(f"edl: {message}\n")
    raise SystemExit(code)
