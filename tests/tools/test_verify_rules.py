"""`tools/verify_rules.py`: it accepts the plans of edl, and names the pods that a rule or a volume keeps away."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.certified_clusters import Certified, Object, certify_objects
from tests.tools.verifier import SCRIPT, faults, loaded, verifier
from tests.worlds.rules.scenes import HOSTNAME, ZONE, apart, bound, job, members, near, nodes, pod, spread, storage

RULES = SCRIPT.with_name("verify_rules.py")
OWN: Object = {"paddlepaddle.org/job": "ruled", "paddlepaddle.org/role": "trainer"}
USES: Object = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
BESIDE = "anti-affinity excludes a pod that is planned for it"


sys.modules.setdefault("verify_certificate", verifier)
script: Any = loaded(RULES)


def web(number: int, on: str = "") -> Object:
    return pod(f"web-{number}", on, affinity=apart(app="web"))


def team(name: str, of: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": of}}}


def near_team(of: str, **labels: str) -> Object:
    """An affinity to pods in the namespaces of a team."""
    found = near(**labels)
    (term,) = found["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["namespaceSelector"] = {"matchLabels": {"team": of}}
    return found


def one_zone(name: str) -> Object:
    """Pods of one zone, spread over its hosts."""
    return {"nodeSelector": {ZONE: name}, "topologySpreadConstraints": spread(app="web")}


FEW_ZONES = spread(ZONE, more={"minDomains": 3}, app="web")
SCENES: dict[str, list[Any]] = {
    "serving apart": [
        nodes(4),
        web(0, "n0"),
        web(1, "n1"),
        web(2),
        job("train", 2, 40),
        members("train", "n3", "n3"),
    ],
    "serving apart from what avoids it": [
        nodes(2),
        pod("loner-0", "n0", affinity=apart(app="web")),
        pod("web-0"),
        job("train"),
    ],
    "trainers apart": [nodes(4), job("plain"), job("ruled", 2, 12, template={"affinity": apart(**OWN)})],
    "trainers near a pod": [
        nodes(4),
        pod("cache-0", "n2", cpu="2"),
        job("ruled", 2, 20, template={"affinity": near(app="cache")}),
    ],
    "trainers with a volume": [
        nodes(4, "ab"),
        bound(storage("a"), "pv-a0"),
        job("ruled", 4, 24, **USES),
        job("plain"),
    ],
    "trainers spread over zones": [
        nodes(4, "ab"),
        job("ruled", 2, 24, template={"topologySpreadConstraints": spread(ZONE, **OWN)}),
    ],
    "trainers near each other": [
        nodes(4, "ab"),
        job("ruled", 2, 12, template={"affinity": near(ZONE, **OWN)}),
    ],
    "serving near its like": [
        nodes(2),
        pod("db-0", "n1", cpu="1"),
        pod("db-1", cpu="1", affinity=near(app="db")),
        job("train"),
    ],
    "serving near pods of a team": [
        nodes(2),
        [team("shop", "one"), team("lab", "two")],
        pod("cache-0", "n1", namespace="shop", cpu="1"),
        pod("cache-1", "n0", namespace="lab", cpu="1"),
        pod("web-0", affinity=near_team("one", app="cache")),
        job("train"),
    ],
    "serving spread over hosts of one zone": [
        nodes(4, "ab"),
        pod("web-0", "n0", cpu="1"),
        [pod(f"web-{number}", cpu="1", **one_zone("a")) for number in (1, 2)],
        job("train"),
    ],
    "serving in fewer zones than it wants": [
        nodes(4, "ab"),
        [pod(f"web-{number}", cpu="1", topologySpreadConstraints=FEW_ZONES) for number in range(4)],
        job("train"),
    ],
    "serving that a spread of others counts": [
        nodes(2, "ab"),
        pod("web-0", "n0", cpu="1"),
        pod("web-1", cpu="1"),
        pod("db-0", cpu="1", topologySpreadConstraints=spread(ZONE, app="web")),
        job("train"),
    ],
}


def certified(name: str, folder: Path) -> Certified:
    flat = [one for each in SCENES[name] for one in (each if isinstance(each, list) else [each])]
    return certify_objects({"apiVersion": "v1", "kind": "List", "items": flat}, folder)


def wrong(world: Certified) -> list[str]:
    found: list[str] = script.verify(world.objects, world.plan, world.certificate)
    return found


@pytest.mark.parametrize("name", SCENES)
def test_plans_with_rules_have_certificates_that_hold(name: str, tmp_path: Path) -> None:
    world = certified(name, tmp_path)
    assert not faults(world.objects, world.plan, world.certificate)
    assert not wrong(world)
    assert any("rules between pods" in one for one in world.certificate["leftOut"])


def elsewhere(world: Certified, key: str, places: dict[str, int]) -> Certified:
    """The same with the new trainers of a job on other nodes."""
    plan = copy.deepcopy(world.plan)
    next(one for one in plan["decisions"] if one["name"] == key)["nodes"] = places
    return Certified(world.objects, world.snapshot, world.made, plan, world.certificate)


def test_a_serving_pod_beside_its_like_is_named(tmp_path: Path) -> None:
    world = certified("serving apart", tmp_path)
    world.certificate["pods"]["default/web-2"] = "n0"
    assert wrong(world) == [f"node n0: {BESIDE}"]


def test_a_serving_pod_beside_one_that_avoids_it_is_named(tmp_path: Path) -> None:
    world = certified("serving apart from what avoids it", tmp_path)
    assert world.certificate["pods"] == {"default/web-0": "n1"}
    world.certificate["pods"]["default/web-0"] = "n0"
    assert wrong(world) == [f"node n0: {BESIDE}"]


def test_two_trainers_on_a_node_that_takes_one_are_named(tmp_path: Path) -> None:
    world = elsewhere(certified("trainers apart", tmp_path), "ruled", {"n0": 1, "n1": 2, "n2": 1})
    assert wrong(world) == [f"node n1: {BESIDE}"]


def test_a_trainer_far_from_its_volume_is_named(tmp_path: Path) -> None:
    world = elsewhere(certified("trainers with a volume", tmp_path), "ruled", {"n0": 4, "n1": 1})
    assert wrong(world) == ["node n1: volume pv-a0 of a pod that is planned for it is elsewhere"]


LONELY, UNEVEN = "a pod that is planned for it must be near a pod that is not there", "topology spread over"


def test_a_trainer_far_from_the_pod_that_it_must_be_near_is_named(tmp_path: Path) -> None:
    world = elsewhere(certified("trainers near a pod", tmp_path), "ruled", {"n2": 2, "n1": 1})
    assert wrong(world) == [f"node n1: {LONELY}"]


def test_a_group_that_begins_in_two_places_is_named(tmp_path: Path) -> None:
    world = certified("trainers near each other", tmp_path)
    (decision,) = [one for one in world.plan["decisions"] if one["name"] == "ruled"]
    assert set(decision["nodes"]) in ({"n0", "n2"}, {"n1", "n3"})
    assert not wrong(elsewhere(world, "ruled", {"n0": 3, "n2": 1}))
    found = wrong(elsewhere(world, "ruled", {"n0": 3, "n1": 1}))
    assert found in ([f"node n0: {LONELY}"], [f"node n1: {LONELY}"])


def test_a_group_that_runs_begins_nowhere_else(tmp_path: Path) -> None:
    world = certified("serving near its like", tmp_path)
    assert world.certificate["pods"] == {"default/db-1": "n1"}
    world.certificate["pods"]["default/db-1"] = "n0"
    assert wrong(world) == [f"node n0: {LONELY}"]


def test_a_neighbour_in_the_namespace_of_another_team_is_none(tmp_path: Path) -> None:
    world = certified("serving near pods of a team", tmp_path)
    assert world.certificate["pods"] == {"default/web-0": "n1"}
    world.certificate["pods"]["default/web-0"] = "n0"
    assert wrong(world) == [f"node n0: {LONELY}"]


def test_trainers_that_fill_one_zone_are_named(tmp_path: Path) -> None:
    world = certified("trainers spread over zones", tmp_path)
    assert not wrong(elsewhere(world, "ruled", {"n0": 3, "n1": 2}))
    assert wrong(elsewhere(world, "ruled", {"n0": 4, "n1": 2})) == [
        f"node n0: {UNEVEN} {ZONE} allows no pod that is planned for it"
    ]


def test_a_spread_counts_only_nodes_that_the_pod_accepts(tmp_path: Path) -> None:
    world = certified("serving spread over hosts of one zone", tmp_path)
    assert sorted(world.certificate["pods"].values()) in (["n0", "n2"], ["n2", "n2"])
    assert not wrong(world)
    world.certificate["pods"] = {"default/web-1": "n0", "default/web-2": "n0"}
    assert wrong(world) == [f"node n0: {UNEVEN} {HOSTNAME} allows no pod that is planned for it"]


def test_with_too_few_domains_each_gets_no_more_than_the_skew(tmp_path: Path) -> None:
    world = certified("serving in fewer zones than it wants", tmp_path)
    assert len(world.certificate["pods"]) == 2
    world.certificate["pods"]["default/web-3"] = "n0"
    world.certificate["pods"]["default/web-2"] = "n1"
    assert len(wrong(world)) == 2
    assert all(UNEVEN in one for one in wrong(world))


def test_a_pod_that_a_spread_does_not_count_needs_a_domain_that_is_not_too_full(tmp_path: Path) -> None:
    world = certified("serving that a spread of others counts", tmp_path)
    assert not wrong(world)
    pods = world.certificate["pods"]
    world.certificate["pods"] = {name: "n0" for name in pods if "db" in name}
    assert not wrong(world)
    extra = pod("web-9", "n0", cpu="1")
    world.objects["items"].append(extra)
    assert wrong(world) == [f"node n0: {UNEVEN} {ZONE} allows no pod that is planned for it"]


def test_the_script_runs_alone(tmp_path: Path) -> None:
    world = certified("serving apart", tmp_path)

    def run(certificate: Object) -> tuple[int, str]:
        paths = [tmp_path / name for name in ("snapshot.json", "plan.json", "certificate.json")]
        for path, document in zip(paths, (world.objects, world.plan, certificate), strict=True):
            path.write_text(json.dumps(document))
        done = subprocess.run(
            [sys.executable, str(RULES), *map(str, paths)], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout or done.stderr

    assert run(world.certificate) == (
        0,
        "each pod is where its rules about other pods and its volumes let it be\n",
    )
    wrong_place = {**world.certificate, "pods": {"default/web-2": "n1"}}
    assert run(wrong_place) == (1, f"node n1: {BESIDE}\n")
    code, said = run({})
    assert code == 2
    assert "do not belong together" in said
