"""`edl explain`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import typer

from edl.cli.warnings import warn
from edl.clock import SystemClock
from edl.controller.planning import report_snapshot
from edl.explain.blocked_serving import waiting_lines
from edl.explain.job_text import find_job, job_report_json, print_job_report
from edl.explain.plan_table import make_console
from edl.explain.steps import showing
from edl.kube.client.session import ApiSession
from edl.kube.mirror.read_once import look
from edl.kube.queue_file import unlimited, unsaved
from edl.kube.snapshot_files.saved_cluster import read_snapshot_files
from edl.model.cluster import ClusterSnapshot
from edl.settings.explain import ExplainSettings
from edl.settings.shared import TextOutput


def explain(settings: ExplainSettings) -> None:
    """Print why a job has its number of trainers, and what would give it more; objects left out go to stderr.

    Raises:
        ConfigError: the job is unknown, or a file cannot be read.
        EdlError: the cluster cannot be read, or no plan can be made.
    """
    with showing("reading the cluster"):
        snapshot, left_out = _snapshot(settings)
    warn(left_out)
    key, limits = find_job(snapshot, settings.job, settings.namespace), settings.read_limits()
    warn(unsaved(snapshot, limits.quotas) if settings.filename else ())
    jobs = [job for job in snapshot.jobs if job.key == key]
    warn(unlimited(jobs, limits.quotas, [queue.name for queue in snapshot.queues], limits.tenants))
    with showing(f"planning {len(snapshot.jobs)} jobs on {len(snapshot.nodes)} nodes"):
        report = report_snapshot(snapshot, key, settings.policy, limits)
    if settings.output is TextOutput.JSON:
        typer.echo(job_report_json(report, snapshot))
    else:
        print_job_report(report, snapshot, make_console())


def _snapshot(settings: ExplainSettings) -> tuple[ClusterSnapshot, Sequence[object]]:
    """Return the saved or the live cluster, with what to tell the user about it, such as what could not be read."""
    if settings.filename:
        saved = read_snapshot_files(settings.filename)
        snapshot, left_out = saved.snapshot(settings.now_s)
        return snapshot, (*left_out, *saved.warnings(), *waiting_lines(snapshot))
    return asyncio.run(_read_cluster(settings.kubeconfig))


async def _read_cluster(kubeconfig: str) -> tuple[ClusterSnapshot, Sequence[object]]:
    async with await ApiSession.open(kubeconfig) as session:
        return await look(session, SystemClock())
