"""What a change of a saved cluster would change: the plan with it against the plan without it.

The first file is the cluster as it is, later files are the change: a new job, fewer nodes, another spec. Both plans
are made for the same moment and by the same policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edl.controller.planning import plan_snapshot
from edl.explain.comparison import Changes, JobChange, compare, fulfilment_of
from edl.kube.snapshot_files import SavedCluster
from edl.model.plan import Limits, ScaleDecision, ScalePlan
from edl.model.units import count


def changes_of(saved: SavedCluster, now_s: float | None, limits: Limits, plan: ScalePlan) -> Changes | None:
    """Compare the plan of all files with that of the first file alone; None where there is nothing to compare.

    There is where the first file holds a node, so that it may be taken for a cluster, and later files change it. Both
    plans are made by the policy of the given one, because what later files bring may have decided which that is.
    """
    base = saved.base
    if base is None:
        return None
    snapshot, _ = base.snapshot(now_s)
    if limits.consolidate_after_s:  # what a later file brings would end the rest, and not take what pservers gave
        limits = replace(limits, consolidate_after_s=0.0)
        plan = plan_snapshot(saved.snapshot(now_s)[0], plan.policy, limits)
    return compare(plan_snapshot(snapshot, plan.policy, limits), plan, saved.first_name)


def changes_dict(changes: Changes) -> dict[str, Any]:
    """The comparison in the form that scripts read."""
    first, second = changes.before.certificate, changes.after.certificate
    return {
        "against": changes.against,
        "jobs": [_job_dict(change) for change in changes.jobs],
        "same": changes.same,
        "achieved": {"before": first.achieved, "after": second.achieved},
        "serving": {
            "before": {"waiting": changes.before.serving.waiting, "placed": changes.before.serving.placed},
            "after": {"waiting": changes.after.serving.waiting, "placed": changes.after.serving.placed},
        },
    }


def print_changes(changes: Changes, console: Console) -> None:
    """Print who gets something else, and why what is new does not start."""
    console.print(Text(f"What changes, against {changes.against} alone:"))
    if not changes.jobs:
        console.print(Text("No job gets more or less."))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("JOB", overflow="fold")
    for name in ("BEFORE", "AFTER"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("EFFECT", overflow="fold")
    for change in changes.jobs:
        counts = (str(d.target) if d is not None else "-" for d in (change.before, change.after))
        table.add_row(Text(str(change.job)), *counts, Text(_effect(change)))
    console.print(table)
    there = sum(change.fulfilment for change in changes.jobs if change.before is not None)
    console.print(Text(f"Jobs that were there: {there:+.2g} of fulfilment in all; {changes.same} of them unchanged"))
    for line in _waiting(changes):
        console.print(Text(line), soft_wrap=True)


def _effect(change: JobChange) -> str:
    before, after = change.before, change.after
    if after is None:
        return "is not there any more"
    if not after.admitted:
        return "does not start" if before is None or not before.admitted else "loses its place: all its trainers go"
    if before is None or not before.admitted:
        return f"starts with {count(after.target, 'trainer')} (fulfilment {fulfilment_of(after):.2g})"
    word = "more" if change.trainers > 0 else "fewer"
    return f"{count(abs(change.trainers), 'trainer')} {word} (fulfilment {change.fulfilment:+.2g})"


def _waiting(changes: Changes) -> Iterator[str]:
    """Why a job that the change adds, or that it stops, does not run."""
    for change in changes.jobs:
        if change.after is not None and not change.after.admitted:
            yield f"{change.job} does not start: {change.after.message}"


def _job_dict(change: JobChange) -> dict[str, Any]:
    return {
        "namespace": change.job.namespace,
        "name": change.job.name,
        "before": _side(change.before),
        "after": _side(change.after),
        "trainers": change.trainers,
        "fulfilment": change.fulfilment,
    }


def _side(decision: ScaleDecision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    return {"target": decision.target, "admitted": decision.admitted, "reason": decision.reason.value}
