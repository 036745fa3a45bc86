"""`tools/verify_speeds.py`: logarithms between rational numbers, and plans of policies that count speeds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edl.errors import EdlError
from edl.planner.policies.registry import policy_named
from edl.planner.speedup import curve_of, worth_of
from tests.tools.certified_clusters import Certified, Object, certify_objects, random_objects, with_speeds
from tests.tools.mutations import run
from tests.tools.test_verify_certificate import cluster, job, node, pod
from tests.tools.verifier import SCRIPT, SPEEDS, faults, of_speeds, verifier
from tests.worlds.effort import examples

EXACT = Context(prec=60)
TIGHT = Fraction(1, 10**25)
HOW_MANY = 30
DOCS = Path(__file__).parents[2] / "docs"

positive = st.fractions(min_value=Fraction(1, 10**12), max_value=10**15).filter(bool)
curves = st.lists(st.tuples(st.integers(1, 40), st.floats(1e-8, 1e14)), max_size=6, unique_by=lambda one: one[0])


def script(tmp_path: Path, tool: Path, *documents: object) -> tuple[int, str, str]:
    paths = [tmp_path / name for name in ("snapshot.json", "plan.json", "certificate.json")]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document))
    command = [sys.executable, "-S", str(tool), *map(str, paths)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def faster(name: str, low: int, high: int, speeds: tuple[tuple[int, float], ...]) -> Object:
    declared = [{"instances": n, "samplesPerSecond": speed} for n, speed in speeds]
    return job(name, low, high, {"cpu": "1", "memory": "1Gi"}, elasticity={"throughput": declared})


@pytest.fixture
def shared(tmp_path: Path) -> Certified:
    """Two jobs on eight slots: one grows with its trainers, and one hardly."""
    scales = faster("scales", 1, 8, ((1, 100.0), (8, 800.0)))
    stalls = faster("stalls", 1, 8, ((1, 100.0), (2, 120.0), (8, 130.0)))
    return certify_objects(cluster(node("n1", "9"), scales, stalls), tmp_path, policy="utility")


def test_it_needs_nothing_but_python_and_its_neighbour_and_is_short_enough_to_read() -> None:
    text = SPEEDS.read_text()
    assert "edl." not in "".join(line for line in text.splitlines() if "import" in line)
    assert len(text.splitlines()) <= 180


@given(positive)
@examples(200)
def test_a_logarithm_is_between_its_bounds(x: Fraction) -> None:
    low, high = of_speeds.log_of(x)
    exact = EXACT.ln(EXACT.divide(Decimal(x.numerator), Decimal(x.denominator)))
    assert low <= Fraction(exact) <= high
    assert high - low < TIGHT


@given(curves, st.integers(0, 40), st.integers(1, 12), st.integers(0, 60))
@examples(200)
def test_a_curve_is_the_one_that_the_planner_uses(
    points: list[tuple[int, float]], seen: int, low: int, more: int
) -> None:
    known = {n: Fraction(speed) for n, speed in points}
    planned, curve = curve_of(points, seen), of_speeds.curve_of(known, seen)
    for n in range(1, low + more + 1):
        least, most = of_speeds.log_speed(curve, n)
        assert float(least) == pytest.approx(float(EXACT.ln(Decimal(planned.speed(n)))), abs=1e-9)
        assert most - least < TIGHT


@pytest.mark.parametrize(("policy", "tool"), [("maxmin", verifier), ("utility", of_speeds)])
def test_a_job_that_more_trainers_would_slow_may_have_its_maximum_in_the_bound(
    policy: str, tool: Any, tmp_path: Path
) -> None:
    """The planner gives it four, which it has to find out; the scripts let it have eight."""
    slowed, other = faster("slowed", 1, 8, ((4, 400.0), (8, 100.0))), job("other", 1, 9, {"cpu": "1"})
    world = certify_objects(cluster(node("n1", "9"), slowed, other), tmp_path, policy=policy)
    assert {d["name"]: d["target"] for d in world.plan["decisions"]}["slowed"] <= 4
    assert faults(world.objects, world.plan, world.certificate, tool) == []


@pytest.mark.parametrize("policy", ["utility", "goodput"])
def test_it_accepts_what_edl_proves_of_random_clusters(policy: str, tmp_path: Path) -> None:
    accepted = 0
    for seed in range(HOW_MANY):
        try:
            objects = with_speeds(random_objects(seed, may_lend=True), seed)
            world = certify_objects(objects, tmp_path, policy=policy)
        except EdlError:  # a certificate does not cover everything
            continue
        assert faults(objects, world.plan, world.certificate, of_speeds) == [], seed
        assert "what resizes cost: in the bound, counts change for nothing" in world.certificate["leftOut"]
        accepted += 1
    assert accepted > HOW_MANY / 2


def test_a_job_that_runs_without_its_master_has_no_certificate(tmp_path: Path) -> None:
    """Its trainer is on a node that takes no pods any more, and there is no other."""
    labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "trainer", "paddlepaddle.org/index": "0"}
    closed = node("n1") | {"spec": {"unschedulable": True}}
    world = cluster(
        closed, job("ctr", 1, 1, {"cpu": "1", "memory": "1Gi"}), pod("ctr-trainer-0", "1", labels, node="n1")
    )
    with pytest.raises(EdlError, match=r"ads/ctr runs without a pod of its minimum \(its master waits for a node"):
        certify_objects(world, tmp_path)


def test_the_worth_of_a_plan_is_the_logarithm_of_how_much_faster_its_jobs_are(shared: Certified) -> None:
    targets = {d["name"]: d["target"] for d in shared.plan["decisions"]}
    speeds = {name: policy_named("utility").adapt(one) for one in shared.snapshot.jobs for name in [one.key.name]}
    worth = sum(worth_of(speeds[name], 1, 8).value(n) for name, n in targets.items())
    right, wrong = of_speeds.verify(shared.objects, shared.plan, shared.certificate)
    assert wrong == []
    assert float(right[0].rpartition(" ")[2]) == pytest.approx(worth, abs=1e-9)


def test_a_bound_that_is_lower_than_what_its_prices_prove_is_refused(shared: Certified) -> None:
    proof = shared.certificate["proofs"]["promised"]
    proof["bound"] = str(int(proof["bound"]) - 10**16)
    (fault,) = faults(shared.objects, shared.plan, shared.certificate, of_speeds)
    assert fault.startswith("proof promised: its prices prove ")


def test_the_speeds_are_those_of_the_snapshot(shared: Certified) -> None:
    (declared,) = [i["spec"]["elasticity"] for i in shared.objects["items"] if i["metadata"]["name"] == "scales"]
    declared["throughput"][1]["samplesPerSecond"] = 700.0
    assert "PLAN and CERTIFICATE do not state the same worth, bounds and serving" in faults(
        shared.objects, shared.plan, shared.certificate, of_speeds
    )


def test_a_level_has_no_place_where_speeds_count(shared: Certified) -> None:
    shared.certificate["levels"] = [shared.certificate["proofs"]["promised"]]
    assert faults(shared.objects, shared.plan, shared.certificate, of_speeds)


def test_each_script_sends_the_plans_of_the_other_there(shared: Certified, tmp_path: Path) -> None:
    documents = (shared.objects, shared.plan, shared.certificate)
    code, said, _ = script(tmp_path, SPEEDS, *documents)
    assert (code, said.splitlines()[0].partition(";")[0]) == (0, "every number adds up and no node is overcommitted")
    code, said, error = script(tmp_path, SCRIPT, *documents)
    assert (code, said) == (2, "")
    assert "plans that count speeds are for verify_speeds.py" in error
    plain = certify_objects(shared.objects, tmp_path)
    code, said, error = script(tmp_path, SPEEDS, plain.objects, plain.plan, plain.certificate)
    assert (code, said) == (2, "")
    assert "all others for verify_certificate.py" in error


def test_a_wrong_plan_of_speeds_has_exit_code_1(shared: Certified, tmp_path: Path) -> None:
    shared.plan["decisions"][0]["target"] += 1
    code, said, _ = script(tmp_path, SPEEDS, shared.objects, shared.plan, shared.certificate)
    assert (code, "do not add up" in said) == (1, True)


def _all_alike(*_: object) -> tuple[Fraction, Fraction]:
    return Fraction(0), Fraction(0)


def _unknown(*_: object) -> tuple[dict[int, Fraction], int]:
    return {}, 0


@pytest.mark.parametrize(("name", "broken"), [("log_speed", _all_alike), ("points_of", _unknown)])
def test_a_script_that_misreads_speeds_is_caught(
    name: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_speeds, name, broken)
    with pytest.raises(AssertionError):
        run(500, seed=3)


def test_the_page_shows_what_is_printed_of_its_example(tmp_path: Path) -> None:
    objects = yaml.safe_load((DOCS / "how-to" / "goodput.yaml").read_text())
    world = certify_objects(objects, tmp_path, policy="goodput")
    right, wrong = of_speeds.verify(world.objects, world.plan, world.certificate)
    assert wrong == []
    assert "\n".join(right) in (DOCS / "certificate.md").read_text()
