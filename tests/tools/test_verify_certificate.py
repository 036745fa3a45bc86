"""`tools/verify_certificate.py`: it accepts what edl proves, and refuses whatever is false."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

from edl.errors import EdlError
from edl.kube.snapshot_files.documents import list_objects, read_documents
from tests.tools.certified_clusters import Certified, Object, certify_objects, random_objects
from tests.tools.mutations import run
from tests.tools.verifier import SCRIPT, faults, verifier

CHANGES = int(os.environ.get("EDL_TEST_CHANGES", "1500"))
GIB = 1024**3
ROLE_MARKS: list[Object] = [
    {"name": "ctr-trainer-1", "labels": {}, "trainers": 2},
    {"name": "ctr-trainer-1", "labels": {"paddlepaddle.org/role": "none"}, "trainers": 2},
    {"name": "x", "labels": {"paddle-job": "ctr"}, "trainers": 2},
    {"name": "ctr-trainer-1", "labels": {"paddle-job-pserver": "ctr"}, "trainers": 1},
    {"name": "ctr-master-1", "labels": {"paddlepaddle.org/role": "trainer"}, "trainers": 2},
    {"name": "ctr-1", "labels": {}, "trainers": 1},
]


def node(name: str = "n1", cpu: str = "8", memory: str = "32Gi", **more: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more,
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
    }


def job(name: str, low: int, high: int, requests: Object, **spec: Any) -> Object:
    template = {"template": {"spec": spec.pop("template")}} if "template" in spec else {}
    trainer = {"entrypoint": "t", "min-instance": low, "max-instance": high, "resources": {"requests": requests}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "ads"},
        "spec": {"fault_tolerant": True, "trainer": {**trainer, **template}, **spec},
    }


def pod(name: str, cpu: str, labels: Object, *, namespace: str = "ads", node: str = "") -> Object:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running" if node else "Pending"},
    }


def cluster(*items: Object) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


@pytest.fixture
def simple(tmp_path: Path) -> Certified:
    """Two nodes and two jobs that want more than there is."""
    requests = {"cpu": "1500m", "memory": "2Gi"}
    return certify_objects(
        cluster(node("n1"), node("n2", "4"), job("ctr", 1, 6, requests), job("new", 2, 6, {"cpu": "2"})), tmp_path
    )


def script(tmp_path: Path, *documents: object) -> tuple[int, str, str]:
    paths = [tmp_path / name for name in ("snapshot.json", "plan.json", "certificate.json")]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(document if isinstance(document, str) else json.dumps(document))
    command = [sys.executable, "-I", "-S", str(SCRIPT), *map(str, paths)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_it_needs_nothing_but_python_and_is_short_enough_to_read() -> None:
    text = SCRIPT.read_text()
    assert "edl." not in "".join(line for line in text.splitlines() if "import" in line)
    assert len(text.splitlines()) <= 404


def test_what_holds_is_said_and_the_exit_code_is_0(simple: Certified, tmp_path: Path) -> None:
    code, out, err = script(tmp_path, simple.objects, simple.plan, simple.certificate)
    assert (code, err) == (0, "")
    assert "no node is overcommitted" in out
    assert "no plan that gives each job its minimum count is worth more than 1." in out


def test_what_does_not_hold_is_named_and_the_exit_code_is_1(simple: Certified, tmp_path: Path) -> None:
    decision = simple.plan["decisions"][0]
    (name, count), *_ = decision["nodes"].items()
    decision["nodes"][name], decision["target"] = count + 9, decision["target"] + 9
    code, out, _ = script(tmp_path, simple.objects, simple.plan, simple.certificate)
    assert code == 1
    assert f"node {name}: overcommitted" in out


def test_a_bound_below_what_its_prices_prove_is_refused(simple: Certified) -> None:
    proof = simple.certificate["proofs"]["promised"]
    proof["bound"] = str(int(proof["bound"]) - 10**16)
    (fault,) = faults(simple.objects, simple.plan, simple.certificate)
    assert fault.startswith("proof promised: its prices prove ")


def test_a_level_below_what_its_prices_prove_is_refused(simple: Certified) -> None:
    for stated, proof in zip(simple.plan["certificate"]["levels"], simple.certificate["levels"], strict=True):
        assert Fraction(proof["bound"]) == pytest.approx(stated["bound"])
    simple.certificate["levels"][0]["bound"] = "1/100"
    (fault,) = faults(simple.objects, simple.plan, simple.certificate)
    assert fault.endswith("its prices do not prove that 0.01 is the most")


def test_a_level_that_is_stated_of_other_jobs_is_refused(simple: Certified) -> None:
    simple.plan["certificate"]["levels"][0]["jobs"] = ["ads/new", "ads/ctr"]
    (fault,) = faults(simple.objects, simple.plan, simple.certificate)
    assert fault.endswith("PLAN states other jobs or another fulfilment")


def test_a_sum_with_the_trainers_that_stay_is_proved_with_their_nodes(tmp_path: Path) -> None:
    """A trainer of `small` on each of two nodes keeps them from `wide`, which could have all if these were on one."""
    nodes = [node(name, "4") for name in ("n1", "n2", "n3")]
    labels = {"paddlepaddle.org/job": "small", "paddlepaddle.org/role": "trainer"}
    pods = [
        pod(f"small-trainer-{i}", "1", {**labels, "paddlepaddle.org/index": str(i)}, node=f"n{i + 1}") for i in (0, 1)
    ]
    small = job("small", 2, 2, {"cpu": "1", "memory": "1Gi"}, fault_tolerant=False)
    wide = job("wide", 1, 2, {"cpu": "3500m"})
    world = certify_objects(cluster(*nodes, small, wide, *pods), tmp_path)
    right, wrong = verifier.verify(world.objects, world.plan, world.certificate)
    assert wrong == []
    assert "the worst off have 0.0, no plan gives all of them more than 1.0" in right
    assert "no plan with these levels, wherever pods run, is worth more than 2.0" in right
    assert "no plan with these levels in which the trainers that stay do not move is worth more than 1.0" in right


def test_a_file_that_is_not_json_is_named_with_the_remedy_and_the_exit_code_is_2(
    simple: Certified, tmp_path: Path
) -> None:
    code, out, err = script(tmp_path, "kind: List", simple.plan, simple.certificate)
    assert (code, out) == (2, "")
    remedy = "is not JSON; write it with `kubectl get ... -o json`"
    assert f"error: {tmp_path / 'snapshot.json'} {remedy}" in err
    assert "Error" not in err


def test_files_that_do_not_belong_together_are_said_to_be_so(simple: Certified, tmp_path: Path) -> None:
    del simple.certificate["pods"]
    code, out, err = script(tmp_path, simple.objects, simple.plan, simple.certificate)
    assert (code, out) == (2, "")
    assert "error: the files do not belong together, or have a field that is missing" in err
    assert "('pods')" in err
    assert "Error" not in err


@pytest.mark.parametrize("given", [[], ["one.json"], ["1.json", "2.json", "3.json", "4.json"]])
def test_another_number_of_files_than_three_prints_the_usage(given: list[str]) -> None:
    command = [sys.executable, "-I", "-S", str(SCRIPT), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python verify_certificate.py SNAPSHOT PLAN CERTIFICATE\n")
    assert "Error" not in done.stderr


def test_help_says_where_the_files_are_from() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", str(SCRIPT), "-h"], capture_output=True, text=True, check=True)
    assert "kubectl get -o json" in done.stdout


@pytest.mark.parametrize("marks", ROLE_MARKS)
def test_a_pod_without_a_role_label_has_the_role_that_edl_reads(marks: Object, tmp_path: Path) -> None:
    """The label of the original project says it, else the name of the pod; a pod without either is foreign."""
    ctr = job("ctr", 1, 3, {"cpu": "3"}, fault_tolerant=False)
    pods = [pod(f"ctr-trainer-{n}", "3", {"paddlepaddle.org/job": "ctr"}, node="n1") for n in range(2)]
    pods[1]["metadata"]["name"] = marks["name"]
    pods[1]["metadata"]["labels"] |= marks["labels"]
    waiting = pod("web", "3", {}, namespace="serving")
    world = certify_objects(cluster(node(), ctr, *pods, waiting), tmp_path)
    (decision,) = world.plan["decisions"]
    assert decision["current"] == marks["trainers"]
    assert faults(world.objects, world.plan, world.certificate) == []


def test_the_stored_plan_with_roles_from_names_is_right(tmp_path: Path) -> None:
    """Four trainers of `tests/explain/plan`: two have a role label, one the label of 2017, one only its name."""
    text = Path(__file__).parents[1].joinpath("explain/plan/serving-takes-room-back.input.yaml").read_text()
    objects = cluster(*(body for _, body in list_objects(list(read_documents(text, "stored.yaml")))))
    world = certify_objects(objects, tmp_path)
    assert world.plan["decisions"][0]["current"] == 4
    assert faults(world.objects, world.plan, world.certificate) == []


def test_lists_in_lists_are_read_as_edl_reads_them(tmp_path: Path) -> None:
    """Items of a typed list may leave out their kind, and a later object replaces an earlier one of its name."""
    pods = [pod("web", "1", {}, namespace="serving"), pod("api", "1", {}, namespace="serving", node="n1")]
    for item in (nodes := [node("n1", "2"), node("n2", "2")]) + pods:
        del item["apiVersion"], item["kind"]
    inner = cluster({"apiVersion": "v1", "kind": "PodList", "items": pods}, node("n2", "64"))
    node_list = {"apiVersion": "v1", "kind": "NodeList", "items": nodes}
    nothing = {"apiVersion": "v1", "kind": "List", "items": None}
    ctr = job("ctr", 1, 9, {"cpu": "500m"})
    objects = cluster(node("n1", "64"), cluster(cluster(inner), node_list, nothing), ctr)
    world = certify_objects(objects, tmp_path)
    assert list(world.certificate["pods"]) == ["serving/web"]
    assert faults(world.objects, world.plan, world.certificate) == []
    decision = world.plan["decisions"][0]
    decision["nodes"]["n1"] = decision["nodes"].get("n1", 0) + 9
    decision["target"] += 9
    assert any("node n1: overcommitted" in fault for fault in faults(objects, world.plan, world.certificate))


def test_a_bound_that_is_weaker_than_the_planned_one_is_said(simple: Certified) -> None:
    for document in (simple.plan["certificate"], simple.certificate["plan"]):
        document["bound"] -= 0.25
    right, wrong = verifier.verify(simple.objects, simple.plan, simple.certificate)
    assert wrong == []
    assert any("PLAN states a bound that is lower by 0.2" in line for line in right)


def test_a_limit_without_a_request_is_the_request(tmp_path: Path) -> None:
    spec = job("ctr", 1, 9, {})
    spec["spec"]["trainer"]["resources"] = {"limits": {"cpu": "2", "memory": "1Gi"}}
    world = certify_objects(cluster(node(), spec), tmp_path)
    assert world.plan["decisions"][0]["target"] == 3
    assert faults(world.objects, world.plan, world.certificate) == []


def test_a_job_with_an_invalid_spec_does_not_spoil_the_check_of_the_others(tmp_path: Path) -> None:
    good = job("ctr", 1, 6, {"cpu": "1500m", "memory": "2Gi"})
    empty = {**job("empty", 1, 1, {}), "spec": {}}
    certified = certify_objects(cluster(node(), good, job("bad", 5, 2, {"cpu": "1"}), empty), tmp_path)
    code, said, _ = script(tmp_path, certified.objects, certified.plan, certified.certificate)
    assert (code, said.splitlines()[0].partition(";")[0]) == (0, "every number adds up and no node is overcommitted")


def test_a_plan_that_resizes_another_kind_of_job_has_no_certificate(tmp_path: Path) -> None:
    annotations = {"elastic": "true", "min-instance": "1", "max-instance": "5"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    other = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "other", "namespace": "ads", "uid": "o", "annotations": annotated(annotations)},
        "spec": {"parallelism": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    with pytest.raises(EdlError, match=r"edl resizes ads/job.batch/other, and a certificate covers"):
        certify_objects(cluster(node(), job("ctr", 1, 6, {"cpu": "1"}), other), tmp_path)


def annotated(fields: dict[str, str]) -> dict[str, str]:
    return {f"paddlepaddle.org/{name}": value for name, value in fields.items()}


@pytest.mark.parametrize("seed", range(40))
def test_it_accepts_plans_that_keep_trainers_together(seed: int, tmp_path: Path) -> None:
    """Each second job of a random cluster stays in one pool; pods that run may be in several."""
    objects = random_objects(seed)
    for item in [item for item in objects["items"] if item["kind"] == "TrainingJob"][::2]:
        item["spec"]["topology"] = {"key": "pool", "mode": "Required"}
    try:
        world = certify_objects(objects, tmp_path)
    except EdlError:
        return
    assert faults(world.objects, world.plan, world.certificate) == []


def in_levels(objects: Object, seed: int) -> None:
    """Give most nodes a rack, and each second job levels, and slices of two; the objects are changed."""
    random = Random(seed)  # noqa: S311
    for item in objects["items"]:
        if item["kind"] == "Node" and random.random() < 0.9:
            item["metadata"]["labels"]["rack"] = random.choice("ab")
    for item in [item for item in objects["items"] if item["kind"] == "TrainingJob"][::2]:
        modes = random.choice((("Required", "Preferred"), ("Preferred", "Required"), ("Preferred", "Preferred")))
        levels = [{"key": key, "mode": mode} for key, mode in zip(("pool", "rack"), modes, strict=True)]
        item["spec"]["topology"] = {"levels": levels}
        if random.random() < 0.7:
            item["spec"]["topology"]["slice"] = {"size": 2, "key": random.choice(("pool", "rack"))}
            trainer = item["spec"]["trainer"]
            trainer |= {key: trainer[key] + trainer[key] % 2 for key in ("min-instance", "max-instance")}


@pytest.mark.parametrize("seed", range(60))
def test_it_accepts_plans_in_levels_and_slices(seed: int, tmp_path: Path) -> None:
    objects = random_objects(seed)
    in_levels(objects, seed)
    try:
        world = certify_objects(objects, tmp_path)
    except EdlError:
        return
    assert faults(world.objects, world.plan, world.certificate) == []


def test_the_tree_is_in_the_bound(tmp_path: Path) -> None:
    """Twelve slots are free. A rack holds six, and one slice of four; without labels twelve count."""
    racks = [node(f"n{i}", "3500m", labels={"block": "b", "rack": "ab"[i // 2]}) for i in range(4)]

    def bound(topology: Object) -> Fraction:
        world = certify_objects(cluster(*racks, job("ctr", 4, 12, {"cpu": "1"}, topology=topology)), tmp_path)
        assert faults(world.objects, world.plan, world.certificate) == []
        facts = world.certificate["jobs"]["ads/ctr"]
        worth = Fraction(int(world.certificate["proofs"]["minimum"]["bound"]), int(world.certificate["denominator"]))
        return worth * (int(facts["cap"]) - 4) + 4

    rack, block = {"key": "rack", "mode": "Required"}, {"key": "block", "mode": "Required"}
    assert bound({"levels": [block]}) == 12
    assert bound({"levels": [{"key": "block"}, rack]}) == 6
    assert bound({"levels": [block, {"key": "rack"}], "slice": {"size": 4}}) == 8
    assert bound(rack | {"slice": {"size": 4}}) == 4


def test_a_part_of_a_slice_is_a_fault(tmp_path: Path) -> None:
    racks = [node(name, "4", labels={"rack": rack}) for name, rack in (("n1", "a"), ("n2", "b"))]
    topology = {"key": "rack", "slice": {"size": 2}}
    world = certify_objects(cluster(*racks, job("ctr", 2, 4, {"cpu": "1"}, topology=topology)), tmp_path)
    assert faults(world.objects, world.plan, world.certificate) == []
    world.plan["decisions"][0]["nodes"] = {"n1": 3, "n2": 1}
    assert faults(world.objects, world.plan, world.certificate) == [
        "job ads/ctr: a slice is not whole, or not in one domain"
    ]


def test_trainers_in_two_domains_are_a_fault(tmp_path: Path) -> None:
    racks = [node(name, "4", labels={"rack": rack}) for name, rack in (("n1", "a"), ("n2", "b"), ("n3", "b"))]
    topology = {"key": "rack", "mode": "Required"}
    world = certify_objects(cluster(*racks, job("ctr", 2, 6, {"cpu": "1"}, topology=topology)), tmp_path)
    assert faults(world.objects, world.plan, world.certificate) == []
    world.plan["decisions"][0]["nodes"] = {"n1": 3, "n2": 3}
    assert faults(world.objects, world.plan, world.certificate) == ["job ads/ctr: its pods are not in one domain"]


def test_a_pserver_outside_the_domain_of_its_trainers_is_a_fault(tmp_path: Path) -> None:
    racks = [node(name, "4", labels={"rack": rack}) for name, rack in (("n1", "a"), ("n2", "b"))]
    pserver = {"min-instance": 1, "max-instance": 1, "resources": {"requests": {"cpu": "1"}}}
    topology = {"key": "rack", "mode": "Required"}
    ctr = job("ctr", 2, 2, {"cpu": "1"}, topology=topology, pserver=pserver, fault_tolerant=False)
    world = certify_objects(cluster(*racks, ctr), tmp_path)
    assert faults(world.objects, world.plan, world.certificate) == []
    (home,) = world.certificate["jobs"]["ads/ctr"]["pserver"]
    world.certificate["jobs"]["ads/ctr"]["pserver"] = ["n2" if home == "n1" else "n1"]
    assert faults(world.objects, world.plan, world.certificate) == ["job ads/ctr: its pods are not in one domain"]


def test_a_new_trainer_outside_the_domain_of_a_pserver_that_stays_is_a_fault(tmp_path: Path) -> None:
    racks = [node(name, "4", labels={"rack": rack}) for name, rack in (("n1", "a"), ("n2", "b"))]
    resources = {"requests": {"cpu": "1"}}
    counts = {"min-instance": 1, "max-instance": 1, "resources": resources}
    spec = {"topology": {"key": "rack", "mode": "Required"}, "pserver": counts}
    labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "pserver", "paddlepaddle.org/index": "0"}
    pserver = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "ctr-pserver-0", "namespace": "ads", "uid": "p", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "pserver", "resources": resources}]},
        "status": {"phase": "Running"},
    }
    ctr = job("ctr", 2, 2, {"cpu": "1"}, fault_tolerant=False, **spec)
    world = certify_objects(cluster(*racks, ctr, pserver), tmp_path)
    assert world.plan["decisions"][0]["nodes"] == {"n1": 2}
    assert faults(world.objects, world.plan, world.certificate) == []
    world.plan["decisions"][0]["nodes"] = {"n2": 2}
    assert faults(world.objects, world.plan, world.certificate) == ["job ads/ctr: its pods are not in one domain"]


@pytest.mark.parametrize(
    ("items", "target"),
    [
        ((node(cpu="3500m", memory="7.5Gi"), job("ctr", 1, 9, {"cpu": "100m", "memory": "2.5Gi"})), 2),
        ((node(cpu="4"), job("ctr", 1, 9, {"cpu": "1", "memory": "7680Mi"})), 3),
        ((node(labels={"pool": "b"}), job("ctr", 1, 9, {"cpu": "1"}, template={"nodeSelector": {"pool": "a"}})), 0),
        ((node(taints=[{"key": "x", "effect": "NoSchedule"}]), job("ctr", 1, 9, {"cpu": "1"})), 0),
        (
            (
                node(taints=[{"key": "x", "effect": "NoExecute"}]),
                job("ctr", 1, 3, {"cpu": "1"}, template={"tolerations": [{"operator": "Exists"}]}),
                node("n2", cpu="1"),
            ),
            3,
        ),
    ],
)
def test_quantities_selectors_and_taints_are_read_as_edl_reads_them(
    items: tuple[Object, ...], target: int, tmp_path: Path
) -> None:
    world = certify_objects(cluster(*items), tmp_path)
    (decision,) = world.plan["decisions"]
    assert decision["target"] == target
    assert faults(world.objects, world.plan, world.certificate) == []
    if target:
        decision["target"] += 1
        first = next(iter(decision["nodes"]))
        decision["nodes"][first] += 1
        assert faults(world.objects, world.plan, world.certificate)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_it_accepts_what_edl_proves(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        try:
            world = certify_objects(random_objects(seed), tmp_path)
        except EdlError:
            continue
        assert faults(world.objects, world.plan, world.certificate) == [], f"seed {seed}"


def test_no_harmful_change_of_a_plan_or_a_certificate_is_accepted() -> None:
    counts = run(CHANGES, seed=3)
    assert counts["refused"] > CHANGES / 2
    assert counts["accepted, harmless"]


def _blind_to_rooms(*_: object) -> list[str]:
    return []


def _earns_nothing(*_: object) -> int:
    return 0


def _proves_no_level(*_: object) -> tuple[list[str], list[str]]:
    return [], []


def _always_open(*_: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("check", _blind_to_rooms),
        ("earned", _earns_nothing),
        ("takes", _always_open),
        ("check_levels", _proves_no_level),
    ],
)
def test_a_verifier_with_a_bug_is_caught(
    name: str, broken: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier, name, broken)
    with pytest.raises(AssertionError):
        run(1500, seed=3)
