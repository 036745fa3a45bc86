"""The certificate as a document: what it covers, what it refuses, and what it admits."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from benchmarks.worlds import jobs_2017, nodes_2017
from edl.errors import ConfigError
from edl.explain.best_possible import best_possible
from edl.explain.certificates.document import certify
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.resources import DEVICE_PREFIX, Resources
from edl.planner.decide import Study, study
from edl.planner.policies.registry import policy_named
from tests.planner.topology.slice_world import racks, sliced
from tests.tools.certified_clusters import certify_objects, random_objects
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot

LIMITS = Limits()


def studied(snapshot: ClusterSnapshot, policy: str = "maxmin", limits: Limits = LIMITS) -> Study:
    return study(snapshot, policy_named(policy), limits)


def certified(made: Study) -> dict[str, Any]:
    return certify(made, best_possible(made, LIMITS.deadline_s), LIMITS)


def bound(certificate: dict[str, Any], proof: str) -> float:
    return float(Fraction(int(certificate["proofs"][proof]["bound"]), int(certificate["denominator"])))


def test_the_exact_bound_reaches_the_planned_one_if_whole_pods_decide() -> None:
    made = studied(make_snapshot(nodes_2017(), jobs_2017(20)))
    certificate = certified(made)
    assert bound(certificate, "promised") <= made.plan.certificate.bound + 1e-9
    assert certificate["weakerBy"] == 0
    assert certificate["proofs"]["promised"]["steps"]


def test_a_weaker_bound_is_admitted_with_the_difference(tmp_path: Path) -> None:
    weaker = [certify_objects(random_objects(seed), tmp_path) for seed in (4, 123)]
    for world in weaker:
        difference = bound(world.certificate, "promised") - world.plan["certificate"]["bound"]
        assert difference > 0.3
        assert world.certificate["weakerBy"] == pytest.approx(difference)
        assert f"higher by {difference:.6g}" in world.certificate["note"]


@pytest.mark.parametrize("policy", ["maxmin", "utility"])
def test_a_pinned_count_that_does_not_fit_makes_no_bound_weaker(policy: str) -> None:
    nodes = make_nodes(4, cpu=8)
    on = tuple(node.name for node in nodes)
    other = make_job("other", min_trainers=4, max_trainers=20, age_s=50.0)
    pinned = make_job("pinned", trainers=26, min_trainers=2, max_trainers=40, on=on, pinned=34)
    made = studied(make_snapshot(nodes, (other, pinned)), policy)
    assert [decision.target for decision in made.plan.decisions] == [4, 28]
    assert certified(made)["weakerBy"] == pytest.approx(0.0, abs=1e-9)


def test_a_pinned_count_in_slices_that_does_not_fit_has_a_certificate() -> None:
    pinned = replace(sliced("pinned", 2, 1, 10), pinned=20)
    other = make_job("other", min_trainers=2, max_trainers=6, age_s=9.0)
    made = studied(make_snapshot(racks(4, 4, 4, nodes=1), (pinned, other)))
    assert [decision.target for decision in made.plan.decisions] == [2, 10]
    assert certified(made)["weakerBy"] == pytest.approx(0.0, abs=1e-9)


def test_the_bound_without_promises_is_never_lower() -> None:
    made = studied(make_snapshot(make_nodes(3), (make_job("a", max_trainers=30), make_job("b", cpu=3))))
    certificate = certified(made)
    assert bound(certificate, "minimum") >= bound(certificate, "promised") >= made.plan.certificate.achieved


def test_pods_that_the_plan_does_not_show_have_a_node() -> None:
    fixed = (FixedPods(Role.MASTER, make_shape(1, 1), 1), FixedPods(Role.PSERVER, make_shape(2, 1), 2))
    waiting = (make_serving("web", cpu=3), make_serving("wide", cpu=30))
    made = studied(make_snapshot(make_nodes(3), (make_job("a", fixed=fixed),), waiting))
    certificate = certified(made)
    fact = certificate["jobs"]["default/a"]
    assert (len(fact["master"]), len(fact["pserver"])) == (1, 2)
    assert certificate["pods"].keys() == {"serving/web"}
    assert {*fact["master"], *fact["pserver"], *certificate["pods"].values()} <= {"n000", "n001", "n002"}


def test_a_cluster_without_jobs_has_a_certificate() -> None:
    certificate = certified(studied(make_snapshot(make_nodes(2))))
    assert (certificate["jobs"], bound(certificate, "promised")) == ({}, 0.0)


def test_every_number_of_a_proof_is_a_whole_numerator() -> None:
    certificate = certified(studied(make_snapshot(make_nodes(2), (make_job("a", max_trainers=90),))))
    texts = json.dumps(certificate["proofs"])
    assert "." not in texts
    assert all(int(price) > 0 for price in certificate["proofs"]["promised"]["prices"].values())


def test_a_policy_without_a_rational_value_is_refused() -> None:
    made = studied(make_snapshot(make_nodes(2), (make_job("a"),)), "static-max")
    message = "policy static-max has no certificate in rationals; choose one of maxmin, utility, goodput"
    with pytest.raises(ConfigError, match=message):
        certified(made)


def test_host_ports_are_refused_with_the_pod() -> None:
    job = make_job("a")
    request = job.trainer.request + Resources.of({"hostport/TCP/80": 1})
    made = studied(make_snapshot(make_nodes(2), (replace(job, trainer=replace(job.trainer, request=request)),)))
    with pytest.raises(ConfigError, match="pod default/a trainer uses host ports"):
        certified(made)


def test_devices_by_claim_are_refused_with_the_pod() -> None:
    job = make_job("a")
    request = job.trainer.request + Resources.of({f"{DEVICE_PREFIX}gpu.example.com": 1})
    (node,) = make_nodes(1)
    node = replace(node, allocatable=node.allocatable + Resources.of({f"{DEVICE_PREFIX}gpu.example.com": 2}))
    made = studied(make_snapshot((node,), (replace(job, trainer=replace(job.trainer, request=request)),)))
    with pytest.raises(ConfigError, match="pod default/a trainer uses host ports or devices by claim"):
        certified(made)


def test_many_kinds_of_nodes_and_sizes_share_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = tuple(make_node(f"n{i:02d}", 8 + i * 0.07, 30 + i * 0.9) for i in range(12))
    jobs = tuple(make_job(f"j{i}", cpu=1.05 + i * 0.11, memory_gib=2 + i * 0.3, max_trainers=9) for i in range(6))
    made = studied(make_snapshot(nodes, jobs))
    exact = certified(made)
    monkeypatch.setattr("edl.explain.certificates.prices.MOST_VARIABLES", 10)
    merged = certified(made)
    assert len(merged["proofs"]["promised"]["nodePrices"]) < len(exact["proofs"]["promised"]["nodePrices"])
    assert bound(merged, "promised") < 1.2 * bound(exact, "promised")
