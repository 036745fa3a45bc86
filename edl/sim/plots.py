"""Plots of a campaign, each as PNG and as SVG: time courses, distributions, and what policies trade.

matplotlib is an extra (`edl[plots]`) and is loaded only when plots are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from edl.errors import ConfigError, EdlError
from edl.sim.campaign import summarise
from edl.sim.scenario import Scenario
from edl.sim.simulation import Run

Runs = Mapping[str, Sequence[Run]]
_SIZE = (8.0, 4.5)
_DPI = 120


def require_matplotlib(folder: Path) -> None:
    """Make the folder and load matplotlib, before anything runs.

    Raises:
        ConfigError: either is not possible.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"--plot {folder}: {error.strerror or error}; give the path of a folder that can be written"
        ) from error
    try:
        _pyplot()
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--plot {folder}: matplotlib is not installed; run .venv/bin/pip install -e '.[plots]' in a clone"
            " of edl, or pip install matplotlib where edl is installed as a package"
        ) from error


def draw_all(scenario: Scenario, runs: Runs, folder: Path) -> tuple[Path, ...]:
    """Draw every plot that the runs have data for; returns the files.

    Raises:
        EdlError: a file cannot be written.
    """
    pyplot = _pyplot()
    drawn: list[Path] = []
    for name, draw in (
        ("utilisation", _utilisation),
        ("trainers", _trainers),
        ("serving", _serving),
        ("pending", _pending),
        ("fairness", _fairness),
        ("gap", _gap),
        ("shortfall", _shortfall),
    ):
        figure, axes = pyplot.subplots(figsize=_SIZE, layout="constrained")
        if draw(axes, scenario, runs):
            axes.set_title(f"{scenario.name}: {name}")
            for kind in ("png", "svg"):
                path = folder / f"{scenario.name}-{name}.{kind}"
                _save(figure, path)
                drawn.append(path)
        pyplot.close(figure)
    return tuple(drawn)


def _save(figure: Any, path: Path) -> None:  # noqa: ANN401 - of an optional library
    try:
        figure.savefig(path, dpi=_DPI)
    except OSError as error:
        raise EdlError(f"--plot: {path} cannot be written: {error.strerror or error}; free space there") from error


def _pyplot() -> Any:  # noqa: ANN401 - an optional library
    import matplotlib  # noqa: PLC0415 - an extra, and slow to load

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - once the backend is chosen

    return pyplot


def _courses(axes: Any, runs: Runs, value: str) -> None:  # noqa: ANN401 - axes of an optional library
    for policy, those in runs.items():
        samples = those[0].samples
        axes.step([s.at_s for s in samples], [getattr(s, value) for s in samples], where="post", label=policy, lw=1.2)
    axes.set_xlabel("seconds")
    axes.legend(fontsize="small")


def _utilisation(axes: Any, _: Scenario, runs: Runs) -> bool:  # noqa: ANN401
    _courses(axes, runs, "requested")
    axes.set_ylabel("cores requested by running pods")
    return True


def _trainers(axes: Any, scenario: Scenario, runs: Runs) -> bool:  # noqa: ANN401
    _courses(axes, runs, "trainers")
    axes.set_ylabel("running trainers")
    if scenario.serving:
        other = axes.twinx()
        samples = next(iter(runs.values()))[0].samples
        other.fill_between([s.at_s for s in samples], [s.target for s in samples], step="post", alpha=0.15, color="k")
        other.set_ylabel("serving pods wanted")
    return True


def _serving(axes: Any, scenario: Scenario, runs: Runs) -> bool:  # noqa: ANN401
    if not scenario.serving:
        return False
    _courses(axes, runs, "ready")
    samples = next(iter(runs.values()))[0].samples
    axes.step([s.at_s for s in samples], [s.target for s in samples], where="post", color="k", ls=":", label="wanted")
    axes.set_ylabel("ready serving pods")
    axes.legend(fontsize="small")
    return True


def _pending(axes: Any, _: Scenario, runs: Runs) -> bool:  # noqa: ANN401
    waits: dict[str, list[float]] = {
        policy: sorted(wait for run in those for wait in run.waits_s) for policy, those in runs.items()
    }
    if not any(waits.values()):
        return False
    for policy, values in waits.items():
        if values:
            axes.step(values, [(i + 1) / len(values) for i in range(len(values))], where="post", label=policy)
    axes.set_xlabel("seconds from creation to the first running trainer")
    axes.set_ylabel("share of the jobs that started")
    axes.legend(fontsize="small")
    return True


def _bars(axes: Any, runs: Runs, figure: str, label: str) -> bool:  # noqa: ANN401
    found = {policy: one for policy, those in runs.items() if (one := summarise(those).get(figure)) is not None}
    halves = [0.0 if one.half == float("inf") else one.half for one in found.values()]
    axes.bar(list(found), [one.mean for one in found.values()], yerr=halves, capsize=3)
    axes.set_ylabel(label)
    axes.tick_params(axis="x", rotation=20)
    return bool(found)


def _fairness(axes: Any, _: Scenario, runs: Runs) -> bool:  # noqa: ANN401
    return _bars(axes, runs, "jain", "Jain's index of fulfilment")


def _gap(axes: Any, _: Scenario, runs: Runs) -> bool:  # noqa: ANN401
    planned = {policy: those[0].gaps for policy, those in runs.items() if those[0].gaps}
    if not planned:
        return False
    for policy, gaps in planned.items():
        axes.plot([at_s for at_s, _ in gaps], [100 * gap for _, gap in gaps], label=policy, lw=1.0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("gap to the certified bound, %")
    axes.legend(fontsize="small")
    return True


def _shortfall(axes: Any, scenario: Scenario, runs: Runs) -> bool:  # noqa: ANN401
    if not scenario.serving:
        return False
    for policy, those in runs.items():
        figures = summarise(those)
        if "utilisation" in figures:
            axes.plot(figures["serving_shortfall_pod_s"].mean, 100 * figures["utilisation"].mean, "o", label=policy)
    axes.set_xlabel("serving shortfall, pod-seconds")
    axes.set_ylabel("utilisation, %")
    axes.legend(fontsize="small")
    return True
