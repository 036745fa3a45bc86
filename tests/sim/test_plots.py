"""The plots of a campaign."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.sim.campaign import run_all
from edl.sim.plots import draw_all, require_matplotlib
from tests.sim.scenarios import make_deployment, make_group, make_scenario


def test_each_plot_is_a_png_and_an_svg(tmp_path: Path) -> None:
    scenario = make_scenario(jobs=[make_group(count=2)], serving=[make_deployment((0, 1))], duration_s=20)
    runs = run_all(scenario, ["static-2017", "static-min"], 1, processes=1)
    drawn = draw_all(scenario, runs, tmp_path)
    assert {path.suffix for path in drawn} == {".png", ".svg"}
    assert {path.name.removeprefix("small-") for path in drawn if path.suffix == ".svg"} == {
        f"{name}.svg" for name in ("utilisation", "trainers", "serving", "pending", "fairness", "gap", "shortfall")
    }
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_without_serving_there_is_no_plot_of_it(tmp_path: Path) -> None:
    scenario = make_scenario(jobs=[make_group()], duration_s=20)
    drawn = draw_all(scenario, run_all(scenario, ["static-2017"], 1, processes=1), tmp_path)
    names = {path.stem.removeprefix("small-") for path in drawn}
    assert "utilisation" in names
    assert names.isdisjoint({"serving", "shortfall", "gap"})


def test_a_missing_library_is_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="matplotlib is not installed; run ") as caught:
        require_matplotlib(tmp_path)
    for command in (
        ".venv/bin/pip install -e '.[plots]' in a clone",
        "pip install matplotlib where edl is installed",
    ):
        assert command in str(caught.value)


def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--plot /proc: .*; give the path of a folder that can be written"):
        require_matplotlib(Path("/proc"))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="give the path of a folder"):
        require_matplotlib(tmp_path / "file" / "plots")
