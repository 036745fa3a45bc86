"""A plan for people and for scripts: the table and the JSON of `edl plan`.

Both say the same; the field names of the JSON are fixed, because people script against them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edl.explain.best_possible import BestPossible, best_dict, best_lines
from edl.explain.comparison import Changes
from edl.explain.headroom import headroom_line
from edl.explain.node_asks import asks_dict
from edl.explain.whatif import changes_dict, print_changes
from edl.model.headroom import KeptHeadroom
from edl.model.names import Role
from edl.model.plan import Price, ScaleDecision, ScalePlan
from edl.model.status import Reason
from edl.printable import LONGEST_CELL, one_line

WIDTH_OFF_TERMINAL = 200
NAMED_VICTIMS = 12
"""Where nobody watches, nothing is folded to fit a window."""


def plan_dict(plan: ScalePlan, changes: Changes | None = None, best: BestPossible | None = None) -> dict[str, Any]:
    """The plan in the form that scripts read, with what it changes and how much better it could be, if known."""
    return {
        "decisions": [_decision_dict(d) for d in sorted(plan.decisions, key=lambda d: d.job)],
        "certificate": {
            "objective": plan.certificate.objective,
            "achieved": plan.certificate.achieved,
            "bound": plan.certificate.bound,
            "gap": plan.certificate.gap,
            **(best_dict(best) if best is not None else {}),
        },
        "prices": [{"kind": p.kind, "name": p.name, "resource": p.resource, "price": p.price} for p in plan.prices],
        "serving": {"waiting": plan.serving.waiting, "placed": plan.serving.placed, "short": plan.serving.short},
        **({"headroom": [_headroom_dict(kept) for kept in plan.headroom]} if plan.headroom else {}),
        "seconds": plan.seconds,
        **({"stages": {name: round(seconds, 6) for name, seconds in plan.stages}} if plan.stages else {}),
        **({"comparison": {"policy": plan.policy, "pending": _pending(plan)}} if plan.is_comparison else {}),
        **({"fallback": plan.fallback.value} if plan.fallback is not None else {}),
        **({"cut": list(plan.cut)} if plan.cut else {}),
        **({"changes": changes_dict(changes)} if changes is not None else {}),
    }


def plan_json(plan: ScalePlan, changes: Changes | None = None, best: BestPossible | None = None) -> str:
    """The plan as JSON text."""
    return json.dumps(plan_dict(plan, changes, best), indent=2, allow_nan=False)


def print_plan(
    plan: ScalePlan,
    console: Console | None = None,
    *,
    changes: Changes | None = None,
    best: BestPossible | None = None,
    wide: bool = False,
) -> None:
    """Print the plan for people: a row per job, what changes, what it is worth, and why each job has its count.

    Args:
        plan: the plan.
        console: where to print; by default standard output.
        changes: what it changes, if that was asked.
        best: how much better it could be, if that is known.
        wide: add the prices, and print the full account of each job in place of its message.
    """
    console = console or make_console()
    console.print(_decision_table(plan))
    console.print()
    if changes is not None:
        print_changes(changes, console)
        console.print()
    serving, proof = plan.serving, plan.certificate
    console.print(Text(f"Serving pods: {serving.waiting} waiting, {serving.placed} placed, {serving.short} short"))
    for kept in plan.headroom:
        console.print(Text(one_line(f"Headroom: {headroom_line(kept)}")), soft_wrap=True)
    console.print(
        Text(
            f"Certificate: {proof.objective} {proof.achieved:.6g} of at most {proof.bound:.6g} "
            f"(gap {proof.gap:.3%}), policy {plan.policy}, {plan.seconds:.3f} s"
        )
    )
    for line in best_lines(plan.certificate, best) if best is not None else ():
        console.print(Text(one_line(line)), soft_wrap=True)
    for note in _notes(plan):
        console.print(Text(note), soft_wrap=True)
    if wide and plan.prices:
        console.print()
        console.print(_price_table(plan.prices))
    if any(d.message for d in plan.decisions):
        console.print()
    for decision in sorted(plan.decisions, key=lambda d: d.job):
        if decision.message:
            line = decision.account if wide else decision.message
            console.print(Text(one_line(f"{decision.job}: {line}")), soft_wrap=True)


def _notes(plan: ScalePlan) -> Iterator[str]:
    """Yield what a reader has to know about how the plan was made."""
    if plan.fallback is not None:
        yield (
            f"No new plan was made ({plan.fallback}). This is the last plan without growth, with its old certificate."
        )
    if plan.cut:
        yield f"The deadline cut short: {', '.join(plan.cut)}."
    if plan.is_comparison:
        yield _caveat(plan)


def make_console() -> Console:
    """Make the console that answers are printed to; it folds lines on a terminal only."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH_OFF_TERMINAL)


def _pending(plan: ScalePlan) -> int:
    return sum(decision.pending for decision in plan.decisions)


def _caveat(plan: ScalePlan) -> str:
    """Warn that the plan of a comparison policy is not one that edl would carry out."""
    return (
        f"Policy {plan.policy} is only to compare with: TARGET is what it would ask for, CHANGE only what has"
        f" capacity ({_pending(plan)} trainers stay pending); it is not checked, and its certificate counts"
        " what has capacity"
    )


def _decision_dict(decision: ScaleDecision) -> dict[str, Any]:
    return {
        "namespace": decision.job.namespace,
        "name": decision.job.name,
        "current": decision.current,
        "target": decision.target,
        "min": decision.min_trainers,
        "max": decision.max_trainers,
        "admitted": decision.admitted,
        "victims": list(decision.victims),
        "nodes": dict(decision.nodes),
        "moves": dict(_moves(decision)),
        "reason": decision.reason.value,
        "message": decision.message,
        **_lending_dict(decision),
        **({"asks": asks_dict(decision.asks)} if decision.asks is not None else {}),
    }


def _headroom_dict(kept: KeptHeadroom) -> dict[str, Any]:
    return {
        "request": dict(kept.request.amounts),
        "wanted": kept.wanted,
        "held": kept.held,
        "deleted": kept.deleted,
        "reason": kept.reason,
    }


def _lending_dict(decision: ScaleDecision) -> dict[str, Any]:
    """The CPU that the trainers of a job lend, as JSON; empty if they lend none."""
    if not decision.lent_cpu_milli:
        return {}
    return {"lending": {"cpuMilli": decision.lent_cpu_milli, "slowed": decision.slowed}}


def _decision_table(plan: ScalePlan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("JOB", overflow="fold")
    for name in ("MIN", "MAX", "CURRENT", "TARGET"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ADMITTED", no_wrap=True)
    table.add_column("REASON", no_wrap=True)
    table.add_column("CHANGE", overflow="fold")
    for decision in sorted(plan.decisions, key=lambda d: d.job):
        is_read = decision.reason not in {Reason.INVALID_SPEC, Reason.NOT_RESIZED}  # else its bounds are a guess
        bounds = (decision.min_trainers, decision.max_trainers) if is_read else ("-", "-")
        counts = (*bounds, decision.current, decision.target)
        admitted = "yes" if decision.admitted else "no"
        job = Text(one_line(str(decision.job), LONGEST_CELL))
        change = Text(one_line(", ".join(_changes(decision)) or "-"))
        table.add_row(job, *map(str, counts), admitted, decision.reason.value, change)
    return table


def _changes(decision: ScaleDecision) -> Iterator[str]:
    for node, count in decision.nodes:
        yield f"+{count} on {node}"
    for pserver, node in _moves(decision):
        yield f"{pserver} moves to {node}"
    if len(decision.victims) > NAMED_VICTIMS:
        yield f"-{len(decision.victims)} trainers (-o json names them)"
        return
    for victim in decision.victims:
        yield f"-{victim}"


def _moves(decision: ScaleDecision) -> Iterator[tuple[str, str]]:
    """Describe each pserver that moves, with the node for its replacement."""
    return zip(decision.moves, (node for role, node in decision.fixed_nodes if role is Role.PSERVER), strict=False)


def _price_table(prices: tuple[Price, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("PRICE", justify="right")
    table.add_column("RESOURCE")
    table.add_column("OF")
    for price in prices:
        table.add_row(
            f"{price.price:.6g}",
            Text(one_line(price.resource, LONGEST_CELL), overflow="fold"),
            Text(one_line(f"{price.kind} {price.name}", LONGEST_CELL), overflow="fold"),
        )
    return table
