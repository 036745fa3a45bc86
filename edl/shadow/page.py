"""The report as one page without anything from the network: it can be mailed, and read on a phone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from edl.model.units import count
from edl.shadow.chart import chart_of
from edl.shadow.document import (
    Agreement,
    Costs,
    Disagreement,
    Estimate,
    Evictions,
    Gain,
    Interval,
    Report,
    ResourceGain,
    Unknown,
)
from edl.shadow.summary import length_of

MOST_ROWS = 100
"""Longer tables are cut here; the JSON has all that was kept."""

_STYLE = """
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1rem 3rem; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .4rem 0; } .hint { color: var(--quiet); font-size: .92rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.figures div { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .5rem .7rem; }
.figures b { display: block; font-size: 1.35rem; } .figures span { color: var(--quiet); font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: break-word; min-width: 5.5rem; max-width: 22rem; }
svg { width: 100%; min-width: 36rem; height: auto; }
svg { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
svg text { fill: var(--quiet); font: 13px system-ui, sans-serif; } .grid { stroke: var(--line); opacity: .35; }
.line { fill: none; stroke-width: 2.5; } .capacity { stroke: var(--text); stroke-dasharray: 6 4; }
.with-edl { stroke: var(--job-1); } .used { fill: var(--serving); opacity: .75; }
.training { fill: var(--job-0); opacity: .9; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; font-size: .92rem; margin: .4rem 0; }
.legend i { display: inline-block; width: .9rem; height: .9rem; margin-right: .4rem; vertical-align: -2px; }
"""
_LEGEND = (
    ("serving", "requested by bound pods"),
    ("job-0", "of that: trainers"),
    ("job-1", "with edl, if the plan of each moment held"),
    ("text", "what ready nodes have (dashed)"),
)

Cell = str | int | float


def page_of(report: Report) -> str:
    """The page as HTML."""
    kind = "" if report.is_final else " (intermediate)"
    body = "".join(
        (
            f"<h1>What edl would have done{kind}</h1>",
            f"<p class=hint>{_text(report.server)}, {report.started} to {report.ended},"
            f" {length_of(report.observed_s)} observed by edl {_text(report.edl)}; nothing was written."
            f" {_text(_how(report))}</p>",
            _figures(report),
            _chart(report.intervals),
            _gain(report.gain),
            _agreement(report.agreement),
            _evictions(report.evictions),
            _unknown(report.unknown),
            _costs(report.costs),
        )
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>edl shadow: {_text(report.server)}</title><style>{_colours()}{_STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _colours() -> str:
    """The colours of the dashboard, for light and dark."""
    whole = (files("edl.dashboard") / "static" / "page.css").read_text()
    return whole.partition("\n\n* {")[0]


def _how(report: Report) -> str:
    settings = report.settings
    if not settings.as_if_elastic:
        return f"Policy {settings.policy}; workloads that ask for nothing were left alone."
    low = "half of the pods that they have" if settings.as_if_min == "half" else "one pod"
    high = "twice as many" if settings.as_if_max == "twice" else "as many as they have"
    return f"Policy {settings.policy}; workloads that ask for nothing counted as elastic, from {low} to {high}."


def _figures(report: Report) -> str:
    agreement, evictions = report.agreement, report.evictions
    cpu = next((one for one in report.gain.resources if one.resource == "cpu"), None)
    shown = [
        (_percent(agreement.share), f"of {agreement.bound + agreement.refused} answers of kube-scheduler agreed"),
        (
            str(evictions.trainers),
            f"trainers evicted, {evictions.for_serving} for {count(evictions.serving_pods, 'serving pod')}",
        ),
        ("?" if cpu is None else f"{100 * cpu.gain.mean:+.1f} points", "of the cpu requested, if each plan held"),
        (_seconds(report.costs.p99_s), "99 of 100 decisions are faster"),
    ]
    cards = "".join(f"<div><b>{_text(figure)}</b><span>{_text(what)}</span></div>" for figure, what in shown)
    return f"<div class=figures>{cards}</div>"


def _chart(intervals: Sequence[Interval]) -> str:
    drawn = chart_of(intervals, "cpu")
    if not drawn:
        return "<p>No interval was observed yet.</p>"
    keys = "".join(f'<span><i style="background: var(--{kind})"></i>{text}</span>' for kind, text in _LEGEND)
    return f"<h2>Cpu over time</h2><div class=wide>{drawn}</div><div class=legend>{keys}</div>"


def _gain(gain: Gain) -> str:
    rows = [
        [
            one.resource,
            _amount(one),
            _percent(one.used),
            _percent(one.with_edl),
            _estimate(one.gain, 100, " points"),
            f"{_percent(one.training)} / {_percent(one.training_with_edl)}",
        ]
        for one in gain.resources
    ]
    waiting = [
        ["serving pods that wait", _estimate(gain.serving_waiting, 1, " fewer")],
        ["jobs below their minimum", _estimate(gain.jobs_waiting, 1, " fewer")],
    ]
    return (
        "<h2>What edl expects to gain</h2>"
        + _table(["resource", "capacity", "requested", "with edl", "gain", "trainers: now / with edl"], rows)
        + _table(["waiting, mean over the time observed", "with edl"], waiting)
        + f"<p class=hint>{_text(gain.method)}</p>"
    )


def _agreement(agreement: Agreement) -> str:
    counts = (
        f"{agreement.bound} bound pods, {agreement.bound_agreed} of them on a node that edl would have allowed;"
        f" {agreement.refused} refusals, {agreement.refused_agreed} of them where edl finds no node either."
        f" {agreement.in_flight} of these answers edl understood only 2 s later, once bindings and deletions had"
        f" arrived. Not compared: {agreement.daemon_pods} answers about pods of DaemonSets,"
        f" {agreement.other_schedulers} of other schedulers, and {agreement.no_time} about pods with rules for which"
        " there was no time."
    )
    rows = [
        [
            row.predicate.value,
            "yes" if row.judged else "no",
            f"{row.bound_agreed} / {row.bound_disagreed}" if row.judged else "-",
            f"{row.refused_agreed} / {row.refused_disagreed}",
        ]
        for row in agreement.predicates
    ]
    heads = ["predicate", "judged by edl", "bound: agreed / not", "refusals that name it: agreed / not"]
    return f"<h2>Agreement with kube-scheduler</h2><p>{counts}</p>{_table(heads, rows)}" + _disagreements(
        agreement.disagreements, agreement.left_off
    )


def _disagreements(found: Sequence[Disagreement], left_off: int) -> str:
    if not found:
        return "<p>There is no disagreement.</p>"
    rows = [
        [
            one.at,
            one.pod,
            one.node,
            one.scheduler,
            one.edl,
            ", ".join(one.predicates),
            f"{one.since_change_s:g} s" if one.since_change_s < 1e6 else "-",
        ]
        for one in found
    ]
    heads = ["time", "pod", "node", "kube-scheduler", "edl", "about", "since a change freed capacity"]
    return f"<h3>Disagreements</h3>{_table(heads, rows, more=left_off)}"


def _evictions(evictions: Evictions) -> str:
    counts = (
        f"Plans wanted {count(evictions.trainers, 'trainer')} evicted, {evictions.for_serving} of them for"
        f" {count(evictions.serving_pods, 'serving pod')}; {evictions.fits} of these fit then, by the model, and"
        f" kube-scheduler bound {evictions.bound_anyway} without edl."
    )
    served = [
        [
            one.wanted,
            one.pod,
            f"yes, on {one.node}" if one.fits else "no",
            ", ".join(one.trainers),
            one.outcome if one.waited_s is None else f"{one.outcome} after {one.waited_s:g} s",
        ]
        for one in evictions.served
    ]
    trainers: list[list[Cell]] = [
        [one.first, one.job, one.trainer, one.node, one.reason, ", ".join(one.serving), one.plans]
        for one in evictions.evictions
    ]
    heads = ["from", "serving pod", "fits then", "trainers that would go", "without edl"]
    return (
        f"<h2>Evictions</h2><p>{counts}</p>"
        + _table(heads, served)
        + _table(["from", "job", "trainer", "node", "reason", "for", "plans"], trainers, more=evictions.left_off)
    )


def _unknown(unknown: Unknown) -> str:
    parts = (
        ("Kinds of owners that edl does not know, with their pods", _pairs(unknown.kinds)),
        ("Pods whose devices edl does not count, by the reason", _pairs(unknown.rules)),
        ("Pods of other schedulers", _pairs(unknown.schedulers)),
        ("Workloads that edl would leave alone", _pairs(unknown.refused_workloads)),
        ("Webhooks and policies that see pods or workloads; what they change is not known here", unknown.admission),
        ("What could not be read", _pairs(unknown.unreadable)),
        ("Objects that were skipped", unknown.set_aside),
        ("Why no plan could be made at times", unknown.problems),
    )
    shown = "".join(f"<h3>{_text(title)}</h3>{_list(lines)}" for title, lines in parts if lines)
    return f"<h2>What edl did not understand</h2>{shown or '<p>Nothing.</p>'}"


def _costs(costs: Costs) -> str:
    rows = [
        ["CPU", f"{costs.cpu_s:.1f} s, {costs.cpu_share:.3f} cores on average"],
        ["largest resident memory", f"{costs.rss_bytes / 2**20:.0f} MiB"],
        ["decisions", f"{costs.decisions}, and {costs.failed} that failed"],
        [
            "length of a decision: median, 99th percentile, worst",
            f"{_seconds(costs.median_s)}, {_seconds(costs.p99_s)}, {_seconds(costs.worst_s)}",
        ],
        ["writes that they would have brought", f"{costs.writes}, {costs.writes_per_minute:.1f} a minute (estimate)"],
    ]
    return f"<h2>What the controller would have cost</h2>{_table(['what', 'measured here'], rows)}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, more: int = 0) -> str:
    """Make an HTML table; nothing without rows. Text is escaped."""
    if not rows:
        return ""
    head = "".join(f"<th>{_text(one)}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_ROWS])
    left = max(0, len(rows) - MOST_ROWS) + more
    note = f"<p class=hint>{left} more; report.json has those that were kept.</p>" if left else ""
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>"


def _pairs(found: Mapping[str, Cell]) -> list[str]:
    return [f"{name}: {value}" for name, value in found.items()]


def _text(value: Cell) -> str:
    return escape(str(value))


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.1f} %"


def _seconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.3f} s"


def _estimate(estimate: Estimate | None, factor: float, unit: str) -> str:
    if estimate is None:
        return "?"
    mean = f"{factor * estimate.mean:.1f}{unit}"
    if estimate.low is None or estimate.high is None:
        return f"{mean} (too few intervals for an uncertainty)"
    return f"{mean} ({factor * estimate.low:.1f} to {factor * estimate.high:.1f})"


def _amount(gain: ResourceGain) -> str:
    """The capacity in the unit that people use."""
    if gain.resource == "cpu":
        return f"{gain.capacity / 1000:.1f} cores"
    return f"{gain.capacity / 2**30:.1f} GiB" if gain.resource == "memory" else f"{gain.capacity:.1f}"
