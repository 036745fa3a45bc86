"""A report in one line, for the terminal."""

from __future__ import annotations

from edl.model.units import count
from edl.shadow.document import Report


def summary_of(report: Report) -> str:
    """The most important figures of a report."""
    agreement, evictions = report.agreement, report.evictions
    answers = agreement.bound + agreement.refused
    agreed = (
        "no answer of kube-scheduler yet"
        if agreement.share is None
        else (f"{100 * agreement.share:.1f} % of {answers} answers of kube-scheduler agreed")
    )
    parts = [
        f"{length_of(report.observed_s)} observed",
        agreed,
        f"{count(evictions.trainers, 'trainer')} would have been evicted, {evictions.for_serving} of them for"
        f" {count(evictions.serving_pods, 'serving pod')}",
    ]
    cpu = next((one for one in report.gain.resources if one.resource == "cpu"), None)
    if cpu is not None:
        parts.append(f"cpu {100 * cpu.used:.0f} % requested, {100 * cpu.with_edl:.0f} % with edl")
    return "; ".join(parts)


def length_of(seconds: float) -> str:
    """Format a duration in two units at most: `2 d 3 h`, `1 h 20 min`, `75 s`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
