"""One table of a case: the simulator, the control plane, the difference between them, and what was published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

CALIBRATED = ("utilisation", "steady_utilisation", "pending_mean_s", "serving_shortfall_pod_s")
WITHIN = 0.1
"""By how much simulator and control plane may differ in these figures."""

FIGURES = (
    "utilisation",
    "steady_utilisation",
    "steady_trainers",
    "pending_mean_s",
    "pending_p50_s",
    "pending_p99_s",
    "never_started",
    "jain",
    "serving_shortfall_pod_s",
    "serving_below_s",
    "serving_wait_p95_s",
    "resizes",
    "forced_resizes",
    "trainers_preempted",
    "trainers_deleted",
    "trainer_hours",
)
PUBLISHED: Mapping[str, Mapping[str, tuple[float | None, float | None]]] = {
    "edl2017-case1": {
        "utilisation": (0.824, 0.806),
        "steady_utilisation": (0.887, 0.863),
        "steady_trainers": (346.8, 253.0),
        "pending_mean_s": (308.5, 47.2),
        "jain": (None, 0.37),
        "resizes": (0, 154),
    },
    "edl2017-case2": {
        "utilisation": (0.629, 0.837),
        "steady_utilisation": (0.452, 0.792),
        "pending_mean_s": (1.5, 49.1),
        "serving_shortfall_pod_s": (1939, 20744),
        "serving_below_s": (28, 288),
        "resizes": (0, 60),
    },
}
"""Of the series of 2017, weighted by time: with the autoscaler off, and on (docs/simulator.md)."""


def rows(case: str, found: Mapping[str, Mapping[str, float]]) -> Iterator[list[str]]:
    """The lines of the table, the first of them its head.

    Args:
        case: the name of the scenario.
        found: figures by source: `simulated`, `control plane`, and `as seen`: simulated with the latencies of that.
    """
    published = PUBLISHED.get(case, {})
    yield ["figure", "simulated", "control plane", "difference", "with its latencies", "difference", "off", "on"]
    for name in FIGURES:
        plain, seen, latent = (found.get(kind, {}).get(name) for kind in ("simulated", "control plane", "as seen"))
        if plain is None and seen is None:
            continue
        off, on = published.get(name, (None, None))
        differences = difference(plain, seen), difference(latent, seen)
        yield [name, shown(plain), shown(seen), differences[0], shown(latent), differences[1], shown(off), shown(on)]


def misses(simulated: Mapping[str, float], seen: Mapping[str, float]) -> list[str]:
    """The calibrated figures that differ by more than `WITHIN`."""
    both = [name for name in CALIBRATED if name in simulated and name in seen]
    return [name for name in both if abs(seen[name] - simulated[name]) > WITHIN * simulated[name]]


def difference(simulated: float | None, seen: float | None) -> str:
    """Of the control plane against the simulator, in percent."""
    if simulated is None or seen is None or not simulated:
        return ""
    return f"{seen / simulated - 1:+.1%}"


def shown(value: float | None) -> str:
    """A number with four digits."""
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def text(lines: list[list[str]]) -> str:
    """The table for a terminal."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join([line[0].strip().ljust(widths[0]), *line[1:]]) for line in padded)
