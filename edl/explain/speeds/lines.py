"""The curve of a job and the cost of a change as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edl.explain.speeds.curve import ChangeCost, CountSpeed, Source, SpeedReport
from edl.explain.speeds.steps import percent
from edl.model.plan import ScaleDecision
from edl.model.status import Reason
from edl.model.times import text_of
from edl.model.units import count, seconds

MOST_LISTED = 10
"""Counts in the text; more are only in the JSON."""

_SAID = {
    Source.DECLARED: "declared",
    Source.MEASURED: "measured",
    Source.PREDICTED: "predicted by its trainers",
    Source.BETWEEN: "between two known counts",
    Source.BEYOND: "extrapolated",
    Source.FLAT: "not known; counts as no faster",
    Source.UNKNOWN: "not known; counts as n^0.75",
}


def speed_lines(report: SpeedReport, decision: ScaleDecision) -> Iterator[str]:
    """The report for people, with a heading."""
    unit = "useful samples" if report.is_goodput else "samples"
    yield f"Speed, in {unit} a second"
    shown = _listed(report, decision)
    for one in shown:
        yield f"  {_row(one, decision)}"
    if more := len(report.counts) - len(shown):
        yield f"  and {count(more, 'more count')} (-o json has them)"
    if report.batch is not None:
        yield f"  its global batch is {report.batch} now"
    if report.change is not None:
        yield from (f"  {line}" for line in _change_lines(report.change))
    if report.why_not and decision.reason not in {
        Reason.RESIZE_NOT_WORTH_IT,
        Reason.COOLDOWN,
    }:  # their account says it
        yield f"  {report.why_not}"


def speed_json(report: SpeedReport | None) -> dict[str, Any] | None:
    """The report for scripts; null under a policy that does not look at speeds."""
    if report is None:
        return None
    return {
        "unit": "goodput" if report.is_goodput else "samples",
        "globalBatch": report.batch,
        "counts": [
            {
                "instances": one.trainers,
                "perSecond": one.per_s,
                "samplesPerSecond": one.samples_per_s,
                "efficiency": one.efficiency,
                "globalBatch": one.batch,
                "source": one.source.value,
            }
            for one in report.counts
        ],
        "flatFrom": report.flat_from or None,
        "change": _change_json(report.change) if report.change is not None else None,
        "whyNot": report.why_not or None,
    }


def _listed(report: SpeedReport, decision: ScaleDecision) -> list[CountSpeed]:
    """The counts of the text: those of now and of the plan, then the nearest ones above and below."""
    nearest = sorted(report.counts, key=lambda one: (abs(one.trainers - decision.target), one.trainers))
    nearest.sort(key=lambda one: one.trainers != decision.current)
    return sorted(nearest[:MOST_LISTED], key=lambda one: one.trainers)


def _row(one: CountSpeed, decision: ScaleDecision) -> str:
    parts = [f"{one.per_s:.3g}"]
    if one.samples_per_s is not None and one.efficiency is not None:
        parts.append(f"{one.samples_per_s:.3g} samples at an efficiency of {one.efficiency:.2g}")
    if one.batch is not None:
        parts.append(f"batch {one.batch}")
    marks = [mark for mark, n in (("now", decision.current), ("planned", decision.target)) if n == one.trainers]
    at = f" ({', '.join(marks)})" if marks else ""
    return f"{count(one.trainers, 'trainer')}{at}: {', '.join(parts)}; {_SAID[one.source]}"


def _change_lines(change: ChangeCost) -> Iterator[str]:
    cost = seconds(change.cost_s) if change.cost_s else "nothing"
    origin = "" if change.is_measured else " (the usual cost, as none was measured)"
    least = f", so it must add {percent(change.least_gain)} to make up for that in {change.counted_over_s:g} s"
    least = least if change.least_gain else ", which is not charged while the job starts" if change.cost_s else ""
    yield f"a change of the count costs {cost} of training{origin}{least}"
    if change.last is not None:
        lost = f", which cost {seconds(change.last.lost_s)}" if change.last.lost_s is not None else ""
        yield (
            f"its last change was from {change.last.from_count} to {change.last.to_count} at"
            f" {text_of(change.last.time_s)}{lost}"
        )
    if change.grows_from_s is not None:
        until = text_of(change.grows_from_s)
        yield f"after a change it does not grow for {seconds(change.rest_s)}, so not before {until}"


def _change_json(change: ChangeCost) -> dict[str, Any]:
    last = change.last
    return {
        "costSeconds": change.cost_s,
        "measured": change.is_measured,
        "countedOverSeconds": change.counted_over_s,
        "leastGain": change.least_gain,
        "restSeconds": change.rest_s,
        "growsFrom": text_of(change.grows_from_s) if change.grows_from_s is not None else None,
        "last": {
            "from": last.from_count,
            "to": last.to_count,
            "time": text_of(last.time_s),
            "costSeconds": last.lost_s,
        }
        if last is not None
        else None,
    }
