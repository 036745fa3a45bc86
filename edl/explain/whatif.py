"""Reports what a change of a saved cluster would change, as a table and as JSON: compares two plans.

The first file is the cluster as it is; later files are the change: a new job, fewer nodes, another spec. Both plans
are made for the same moment and by the same policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edl.explain.comparison import Changes, JobChange, fulfilment_of
from edl.model.plan import ScaleDecision
from edl.model.status import Reason
from edl.model.units import count
from edl.printable import LONGEST_CELL, one_line


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
    """Print which jobs get a different count, and why a new job does not start."""
    console.print(Text(one_line(f"Changes against {changes.against} alone:")))
    if not changes.jobs:
        console.print(Text("No job gets a different number of trainers."))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("JOB", overflow="fold")
    for name in ("BEFORE", "AFTER"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("EFFECT", overflow="fold")
    for change in changes.jobs:
        counts = (str(d.target) if d is not None else "-" for d in (change.before, change.after))
        table.add_row(Text(one_line(str(change.job), LONGEST_CELL)), *counts, Text(_effect(change)))
    console.print(table)
    there = sum(change.fulfilment for change in changes.jobs if change.before is not None)
    console.print(Text(f"Jobs that were there before: {there:+.2g} of fulfilment in total; {changes.same} unchanged"))
    for line in _waiting(changes):
        console.print(Text(one_line(line)), soft_wrap=True)


_LEFT_ALONE = {Reason.NOT_RESIZED, Reason.FINISHING}


def _effect(change: JobChange) -> str:
    before, after = change.before, change.after
    if after is None:
        return "no longer in the input"
    if not after.admitted:
        stops = before is not None and before.admitted and after.reason not in _LEFT_ALONE
        return "stops: all its trainers are deleted" if stops else _idle(after)
    if before is None or not before.admitted:
        return f"starts with {count(after.target, 'trainer')} (fulfilment {fulfilment_of(after):.2g})"
    word = "more" if change.trainers > 0 else "fewer"
    return f"{count(abs(change.trainers), 'trainer')} {word} (fulfilment {change.fulfilment:+.2g})"


def _idle(decision: ScaleDecision) -> str:
    """Say what happens to a job that gets no trainers; its own controller may start its pods all the same."""
    return "is left alone" if decision.reason in _LEFT_ALONE else "does not start"


def _waiting(changes: Changes) -> Iterator[str]:
    """Why a job that the change adds or stops does not run."""
    for change in changes.jobs:
        if change.after is not None and not change.after.admitted:
            yield f"{change.job} {_idle(change.after)}: {change.after.message}"


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
