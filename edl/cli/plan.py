"""`edl plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from edl.cli.warnings import warn
from edl.controller.planning import compare_snapshots, judge_snapshot
from edl.errors import ConfigError
from edl.explain.blocked_serving import waiting_lines
from edl.explain.comparison import Changes
from edl.explain.plan_table import plan_json, print_plan
from edl.explain.steps import showing
from edl.kube.queue_file import unlimited, unmatched, unsaved
from edl.kube.snapshot_files.saved_cluster import SavedCluster, read_snapshot_files
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.consolidation import reason_to_wait
from edl.planner.topology.gathering import moves_trainers
from edl.settings.plan import PlanOutput, PlanSettings


def plan(settings: PlanSettings) -> None:
    """Print the decision for a saved cluster, and what the later files change in it; warnings go to stderr.

    Raises:
        ConfigError: a file cannot be read or written, a Queue is not valid, or a certificate does not cover the plan.
        PlanError: no plan can be made, or the plan breaks a rule.
    """
    limits, now_s = settings.read_limits(), settings.now_s
    with showing("reading the files"):
        saved = read_snapshot_files(settings.filename)
        saved.reject_broken_queues()
        snapshot, left_out = saved.snapshot(now_s)
    objects = [queue.name for queue in snapshot.queues]
    queues = (
        *unmatched(limits.quotas, snapshot.jobs, str(settings.queues or ""), objects),
        *unsaved(snapshot, limits.quotas),
        *unlimited(snapshot.jobs, limits.quotas, objects, limits.tenants),
    )
    warn((*left_out, *saved.warnings(), *queues, *waiting_lines(snapshot)))
    with showing(f"planning {len(snapshot.jobs)} jobs on {len(snapshot.nodes)} nodes"):
        judged = judge_snapshot(snapshot, settings.policy, limits, proves=settings.certificate is not None)
    decided = judged.plan
    if settings.certificate is not None and judged.certificate is not None:
        _write(settings.certificate, judged.certificate)
    with showing("comparing it with the plan without the changes"):
        changes = _changes(saved, now_s, snapshot, decided, limits)
    if limits.sharing.consolidate_after_s and not (
        any(d.moves for d in decided.decisions) or moves_trainers(decided)
    ):
        warn([f"no pserver moves: {_obstacle(snapshot, decided, limits.sharing.consolidate_after_s)}"])
    if settings.output is PlanOutput.JSON:
        typer.echo(plan_json(decided, changes, judged.best))
    else:
        print_plan(decided, changes=changes, best=judged.best, wide=settings.output is PlanOutput.WIDE)


def _changes(
    saved: SavedCluster, now_s: float | None, snapshot: ClusterSnapshot, decided: ScalePlan, limits: Limits
) -> Changes | None:
    """Compare the plan with the one before the later files; None if there are no later files."""
    if saved.base is None:
        return None
    before, _ = saved.base.snapshot(now_s)
    return compare_snapshots(before, snapshot, decided, limits, saved.first_name)


def _write(path: Path, certificate: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(certificate, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(
            f"--certificate {path}: {error.strerror}; give the path of a file that can be written"
        ) from error


def _obstacle(snapshot: ClusterSnapshot, decided: ScalePlan, after_s: float) -> str:
    """Say why no pserver moves in the plan."""
    return reason_to_wait(snapshot, decided, after_s) or "no move would make space for a trainer"
