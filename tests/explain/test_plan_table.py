"""The answers of `edl plan`: whole files against whole files, and the two forms of one plan.

`EDL_REGENERATE_PLANS=1 pytest tests/explain/test_plan_table.py` writes the *.output.json of every *.input.yaml anew;
read the difference before you commit it.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edl.controller.planning import judge_snapshot
from edl.errors import PlanFailure
from edl.explain.plan_table import plan_dict, plan_json, print_plan
from edl.kube.snapshot_files.saved_cluster import read_snapshot_files
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.node_groups import NodeAsk, NoNode
from edl.model.plan import Certificate, Price, ScaleDecision, ScalePlan, ServingReport
from edl.model.resources import Resources
from edl.model.status import Reason

INPUTS = sorted(Path(__file__).parent.joinpath("plan").glob("*.input.yaml"))

STAGES = ["read", "serving", "admission", "sharing", "proof", "reasons", "consolidation", "check", "sentences"]

PLAN = ScalePlan(
    decisions=(
        ScaleDecision(
            job=JobKey("ads", "ctr"),
            generation=1,
            current=4,
            target=7,
            min_trainers=2,
            max_trainers=12,
            admitted=True,
            reason=Reason.INSUFFICIENT_CAPACITY,
            message="no more [cpu] on any node",
            nodes=(("n001", 2), ("n004", 1)),
            fixed_nodes=((Role.PSERVER, "n002"),),
            moves=("ctr-pserver-0",),
        ),
        ScaleDecision(
            job=JobKey("ads", "bad"),
            generation=1,
            current=1,
            target=0,
            min_trainers=1,
            max_trainers=1,
            admitted=False,
            reason=Reason.INVALID_SPEC,
            message="",
            victims=("bad-trainer-0",),
        ),
    ),
    certificate=Certificate("fulfilment", 4.5, 5.0),
    prices=(Price("class", "pool default", "cpu", 0.25),),
    serving=ServingReport(3, 2, 1),
    seconds=0.01,
)


def rounded(value: Any) -> Any:
    """Floats to six digits: below that, solvers differ between machines."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name.removesuffix(".input.yaml"))
def test_a_saved_cluster_gives_the_plan_that_was_reviewed(path: Path) -> None:
    snapshot, left_out = read_snapshot_files([str(path)]).snapshot()
    judged = judge_snapshot(snapshot, "", Limits())
    answer = rounded(plan_dict(judged.plan, best=judged.best))
    answer["seconds"] = 0.0
    assert list(answer.pop("stages")) == STAGES
    expected = path.with_name(path.name.replace(".input.yaml", ".output.json"))
    if os.environ.get("EDL_REGENERATE_PLANS"):
        expected.write_text(json.dumps(answer, indent=2) + "\n")
    assert left_out == ()
    assert answer == json.loads(expected.read_text())


def test_there_are_plans_to_compare() -> None:
    assert len(INPUTS) >= 4


def test_the_json_has_the_fields_that_scripts_read() -> None:
    assert json.loads(plan_json(PLAN)) == {
        "decisions": [
            {
                "namespace": "ads",
                "name": "bad",
                "current": 1,
                "target": 0,
                "min": 1,
                "max": 1,
                "admitted": False,
                "victims": ["bad-trainer-0"],
                "nodes": {},
                "moves": {},
                "reason": "InvalidSpec",
                "message": "",
            },
            {
                "namespace": "ads",
                "name": "ctr",
                "current": 4,
                "target": 7,
                "min": 2,
                "max": 12,
                "admitted": True,
                "victims": [],
                "nodes": {"n001": 2, "n004": 1},
                "moves": {"ctr-pserver-0": "n002"},
                "reason": "InsufficientCapacity",
                "message": "no more [cpu] on any node",
            },
        ],
        "certificate": {"objective": "fulfilment", "achieved": 4.5, "bound": 5.0, "gap": 0.1},
        "prices": [{"kind": "class", "name": "pool default", "resource": "cpu", "price": 0.25}],
        "serving": {"waiting": 3, "placed": 2, "short": 1},
        "seconds": 0.01,
    }


def test_the_json_says_which_nodes_a_job_asks_for_and_nothing_of_a_job_that_may_not_ask() -> None:
    asks = NodeAsk("spot", kept=("bad-node-0",), new=(Resources(),), price_per_hour=0.4, gain=6)
    none = NodeAsk("", obstacle=NoNode.RESTS)
    for ask, shown in (
        (asks, {"group": "spot", "nodes": 2, "pricePerHour": 0.4, "gain": 6, "obstacle": None}),
        (none, {"group": "", "nodes": 0, "pricePerHour": 0.0, "gain": 0, "obstacle": "rests"}),
    ):
        plan = replace(PLAN, decisions=(PLAN.decisions[0], replace(PLAN.decisions[1], asks=ask)))
        bad, ctr = json.loads(plan_json(plan))["decisions"]
        assert bad["asks"] == shown
        assert "asks" not in ctr


def test_the_table_says_all_of_it_without_colour_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(PLAN, wide=True)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["JOB", "MIN", "MAX", "CURRENT", "TARGET", "ADMITTED", "REASON", "CHANGE"]
    assert lines[1] == ["ads/bad", "-", "-", "1", "0", "no", "InvalidSpec", "-bad-trainer-0"]
    assert lines[2][:7] == ["ads/ctr", "2", "12", "4", "7", "yes", "InsufficientCapacity"]
    assert " ".join(lines[2][7:]) == "+2 on n001, +1 on n004, ctr-pserver-0 moves to n002"
    rest = [" ".join(line) for line in lines[3:]]
    assert "Serving pods: 3 waiting, 2 placed, 1 short" in rest
    assert "Certificate: fulfilment 4.5 of at most 5 (gap 10.000%), policy maxmin, 0.010 s" in rest
    assert "0.25 cpu class pool default" in rest
    assert rest[-1] == "ads/ctr: no more [cpu] on any node"
    assert "\x1b" not in json.dumps(rest)


def test_a_plan_that_stands_in_for_another_says_so() -> None:
    stands_in = replace(PLAN, fallback=PlanFailure.LATE_SOLVER)
    out = io.StringIO()
    print_plan(stands_in, Console(file=out, width=160))
    assert "No new plan was made (late_solver). This is the last plan without growth" in out.getvalue()
    assert json.loads(plan_json(stands_in))["fallback"] == "late_solver"


def test_a_plan_that_was_cut_short_says_so() -> None:
    cut = replace(PLAN, cut=("admission", "proof"), stages=(("read", 0.25),))
    out = io.StringIO()
    print_plan(cut, Console(file=out, width=160))
    assert "The deadline cut short: admission, proof." in out.getvalue()
    answer = json.loads(plan_json(cut))
    assert (answer["cut"], answer["stages"]) == (["admission", "proof"], {"read": 0.25})


def test_a_plan_without_jobs_is_a_table_without_rows() -> None:
    out = io.StringIO()
    print_plan(ScalePlan((), Certificate("fulfilment", 0.0, 0.0)), Console(file=out, width=100))
    assert "0 waiting" in out.getvalue()


def test_a_long_name_is_folded_and_not_cut() -> None:
    out = io.StringIO()
    decision = PLAN.decisions[1]
    long = ScaleDecision(
        job=JobKey("n" * 63, "j" * 50),
        **{name: getattr(decision, name) for name in ScaleDecision.__slots__ if name != "job"},
    )
    print_plan(ScalePlan((long,), PLAN.certificate), Console(file=out, width=100))
    assert out.getvalue().count("j") == 50
    assert "…" not in out.getvalue()
