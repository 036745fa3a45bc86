"""Workloads that Kueue can never admit: nobody keeps quota or nodes for them, and edl's own jobs say why."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.kube.translate.kueue import flavors
from edl.kube.translate.kueue.loads import PodSet, read_load
from edl.kube.translate.kueue.never import REMEMBERED_S, QueueRules
from edl.kube.translate.kueue.objects import INDEX, WorkloadObject
from edl.kube.translate.kueue.trees import Quotas
from edl.kube.translate.objects import PodSpec, TolerationObject
from edl.kube.translate.snapshot import Translator
from edl.model.limits import Limits
from edl.model.quota_trees import Pool
from edl.model.resources import NodeTerm, Placement, Requirement
from tests.kube.translate.kueue.test_kueue_reader import NODES, key, refusal, running, sizes
from tests.kube.translate.kueue.test_owned import pods as trainers
from tests.kube.translate.kueue.test_owned import queued, seen
from tests.worlds.kueue.objects import (
    cluster_queue,
    flavor,
    kueue_job,
    local_queue,
    own_workload,
    quota,
    resource_groups,
    workload,
)
from tests.worlds.raw_objects import Object, job, node, take

KEPT, NOT_KEPT = {"train": 13}, {"train": 20}
NO_MEMORY = "couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue"
FIRST = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor a, 7 more needed"
TAINT = {"key": "gpu", "value": "5", "effect": "NoSchedule"}


def beside(*green: Object, of: tuple[Object, ...] = (flavor(),), **spec: Any) -> tuple[Object, ...]:
    """Two ClusterQueues that lend to each other; the job of blue has borrowed all of green's flavor a."""
    groups = {"resourceGroups": list(green)} if green else {}
    queues = cluster_queue("blue", 10, cohort="all"), cluster_queue("green", 10, cohort="all", **groups, **spec)
    return (*NODES, *of, local_queue("blue"), local_queue("green"), *queues, *running(20))


def waits(name: str = "owner", pods: int = 7, *, said: str = "", reason: str = "Pending", **more: Any) -> Object:
    """A Workload in green that waits.

    Args:
        name: of the Workload.
        pods: how many it asks for.
        said: what Kueue says about it.
        reason: the same in one word.
        more: `spec` of its pods, `requests` beside those that it has, `least` for a part that suffices.
    """
    found = workload(name, pods, queue="green", **more.pop("workload", {}))
    (pod_set,) = found["spec"]["podSets"]
    pod_set["template"]["spec"] |= more.get("spec", {})
    pod_set["template"]["spec"]["containers"][0]["resources"]["requests"] |= more.get("requests", {})
    if "least" in more:
        pod_set["minCount"] = more["least"]
    if said:
        condition = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": said}
        found["status"]["conditions"] = [condition]
    return found


def affinity(*terms: list[Object]) -> Object:
    """The spec of pods with a required node affinity of these terms."""
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def on(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def tolerating(**more: Any) -> Object:
    return {"tolerations": [{"key": "gpu", **more}]}


def tainted(*taints: Object, **spec: Any) -> Object:
    """Flavor a with labels and taints."""
    found = flavor("a", gpu="a")
    found["spec"] |= {"nodeTaints": list(taints), **spec}
    return found


@pytest.mark.parametrize(
    ("covered", "said", "expected"),
    [
        (["cpu"], "", KEPT),
        (["cpu"], NO_MEMORY, NOT_KEPT),
        (["cpu", "memory"], NO_MEMORY, KEPT),
        (["cpu"], FIRST, KEPT),
    ],
)
def test_a_resource_that_the_queue_does_not_cover_counts_once_kueue_has_said_so(
    covered: list[str], said: str, expected: dict[str, int]
) -> None:
    """Kueue's configuration may leave resources out, and edl does not read that."""
    group = resource_groups(a=[quota(10) if name == "cpu" else quota("1Ti", name=name) for name in covered])
    assert sizes(take(*beside(*group), waits(said=said))) == expected


def test_what_kueue_said_of_one_workload_holds_for_those_that_are_alike() -> None:
    """Kueue looks at one of them only, and says nothing of the others."""
    said = waits("said", 1, said=NO_MEMORY)
    assert sizes(take(*beside(), waits(), said)) == NOT_KEPT
    other = waits()
    other["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    assert sizes(take(*beside(), other, said)) == KEPT


def test_nobody_gives_back_for_a_resource_that_the_queue_does_not_cover_before_kueue_has_tried_the_workload() -> None:
    """Pods that end for a Workload that Kueue then refuses have ended for nothing."""
    new = waits("new")
    new["status"]["conditions"] = []
    assert sizes(take(*beside(), new)) == NOT_KEPT
    assert sizes(take(*beside(), new, waits("alike", 20))) == KEPT, "Kueue tries one of those that are alike"
    covered = resource_groups(a=[quota(10), quota("1Ti", name="memory")])
    assert sizes(take(*beside(*covered), new)) == KEPT


def test_it_holds_for_a_while_after_kueue_says_something_else() -> None:
    """The next time Kueue may say of the same Workload only that the quota of something else is in use."""
    translator = Translator()

    def found(said: str, now_s: float, *green: Object) -> dict[str, int]:
        return sizes(take(*beside(*green), waits(said=said), translator=translator, now_s=now_s))

    assert found(NO_MEMORY, 1000.0) == NOT_KEPT
    assert translator.valid_until_s == inf
    assert found(NO_MEMORY, 5000.0) == NOT_KEPT
    assert found(FIRST, 5001.0) == NOT_KEPT
    assert translator.valid_until_s == 5000.0 + REMEMBERED_S
    assert found(FIRST, 5002.0, *resource_groups(a=[quota(10), quota("1Ti", name="memory")])) == KEPT
    assert found(FIRST, 5000.0 + REMEMBERED_S) == KEPT


def test_a_name_of_a_resource_that_is_a_sentence_says_nothing_of_others() -> None:
    name = "x unavailable in ClusterQueue, resource memory"
    forged = waits("forged", 1, requests={name: "1"}, said=NO_MEMORY.replace("memory", name))
    assert sizes(take(*beside(), waits(), forged)) == KEPT


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hostport/x: resource memory unavailable in ClusterQueue, y", NO_MEMORY),
        ("hugepages-x: resource memory unavailable in ClusterQueue, y", "resources validation failed: memory"),
    ],
)
def test_nor_does_one_that_is_no_amount_or_of_which_the_pods_request_none(name: str, said: str) -> None:
    """Names of host ports are no amounts, and Kueue names what a container requests and its pod does not."""
    forged = waits("forged", 1, requests={name: "1"}, said=said.replace("memory", name))
    spec = forged["spec"]["podSets"][0]["template"]["spec"]
    spec["resources"] = {"requests": {name: "0"}} if name.startswith("hugepages") else {}
    assert sizes(take(*beside(), waits(), forged)) == KEPT


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {"gpu": "a"}}, KEPT),
        ({"nodeSelector": {"gpu": "b"}}, NOT_KEPT),
        ({"nodeSelector": {"zone": "b"}}, KEPT),
        (affinity([on("gpu", "In", "a", "c")]), KEPT),
        (affinity([on("gpu", "In", "b")]), NOT_KEPT),
        (affinity([on("gpu", "In", "b")], [on("gpu", "Exists")]), KEPT),
        (affinity([on("gpu", "In", "b")], [on("zone", "In", "x")]), KEPT),
        (affinity([on("gpu", "In", "b"), on("zone", "In", "x")]), NOT_KEPT),
        (affinity([on("gpu", "NotIn", "a")]), NOT_KEPT),
        (affinity([on("gpu", "DoesNotExist")]), NOT_KEPT),
        (affinity([on("gpu", "Like", "a")]), NOT_KEPT),
        (affinity([on("zone", "Like", "a")]), KEPT),
        (affinity([]), KEPT),
        (affinity(), KEPT),
    ],
)
def test_only_the_labels_of_a_flavor_are_compared_with_what_pods_require(
    spec: Object, expected: dict[str, int]
) -> None:
    assert sizes(take(*beside(of=(flavor("a", gpu="a"),)), waits(spec=spec))) == expected


@pytest.mark.parametrize(
    ("pods", "of_flavor", "taint", "expected"),
    [
        ({}, {}, TAINT, NOT_KEPT),
        ({}, {}, TAINT | {"effect": "PreferNoSchedule"}, KEPT),
        ({}, tolerating(operator="Exists"), TAINT, KEPT),
        (tolerating(operator="Exists"), {}, TAINT, KEPT),
        (tolerating(value="5"), {}, TAINT, KEPT),
        (tolerating(value="6"), {}, TAINT, NOT_KEPT),
        (tolerating(operator="Gt", value="4"), {}, TAINT, KEPT),
        (tolerating(operator="Lt", value="4"), {}, TAINT, NOT_KEPT),
        (tolerating(operator="Lt", value="many"), {}, TAINT, NOT_KEPT),
        (tolerating(operator="Lt", value="9" * 5000), {}, TAINT, NOT_KEPT),
        (
            tolerating(operator="Exists", effect="NoExecute", tolerationSeconds=9),
            {},
            TAINT | {"effect": "NoExecute"},
            KEPT,
        ),
    ],
)
def test_the_taints_of_a_flavor_are_compared_with_the_tolerations_of_both(
    pods: Object, of_flavor: Object, taint: Object, expected: dict[str, int]
) -> None:
    nodes = (tainted(taint, **of_flavor),)
    assert sizes(take(*beside(of=nodes), waits(spec=pods))) == expected


@pytest.mark.parametrize("index", ["9" * 5000, "1.5", "\u0663"])
def test_an_index_that_is_no_number_is_none(index: str) -> None:
    """Whoever may create Workloads writes what he likes there, and the decision is made for all."""
    forged = waits("forged", 1)
    forged["metadata"]["annotations"] = {INDEX: index}
    assert sizes(take(*beside(), waits(), forged)) == {"train": 12}


def test_only_one_flavor_with_enough_is_looked_for() -> None:
    """Thousands of Workloads may wait where there are dozens of flavors, and every decision asks for each."""
    names = [f"f{number:02}" for number in range(50)]
    asked: list[Pool] = []

    def most(pool: Pool) -> int:
        asked.append(pool)
        return 10_000

    rules = QueueRules("", ((frozenset({"cpu"}), tuple(names)),), {}, frozenset(), most)
    pods = PodSet("main", 7, 0, (("cpu", 1000),), flavors.PodPlace(Placement()), 7)
    load = read_load(WorkloadObject())
    assert load is not None
    assert rules.refusal(replace(load, pod_sets=(pods,))) == ""
    assert {pool.flavor for pool in asked} == {"f00"}
    assert rules.refusal(replace(load, pod_sets=(replace(pods, least=11),)))
    assert {pool.flavor for pool in asked} == {*names}
    assert rules.refusal(replace(load, pod_sets=(pods, replace(pods, name="more")))) == "", "on two flavors"


def test_a_template_is_compared_with_a_flavor_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have thousands of expressions, and every decision asks."""
    asked = []
    monkeypatch.setattr(flavors, "holds", lambda one, labels: asked.append((one, labels)))
    place = flavors.PodPlace(Placement(required=(NodeTerm((Requirement("gpu", "In", ("b",)),)),)))
    for label, calls in (("a", 1), ("a", 1), ("b", 2), ("b", 2)):
        assert place.verdict("flavor", flavors.Flavor((("gpu", label),))).why
        assert len(asked) == calls


def test_equal_templates_are_compared_with_a_flavor_once() -> None:
    one, same, other = (
        flavors.place_of(PodSpec(node_selector={"gpu": value}, tolerations=[TolerationObject(key="gpu")]))
        for value in ("a", "a", "b")
    )
    assert one is same
    assert one is not other


def test_the_pools_of_a_workload_are_looked_for_once() -> None:
    """Every job that edl sizes asks for those of each Workload that waits."""
    load = read_load(WorkloadObject())
    assert load is not None
    quotas = Quotas()
    assert quotas.pools_of(load) is quotas.pools_of(load)
    assert quotas.pools_of(load) is not quotas.pools_of(replace(load))


def test_the_claim_is_on_a_flavor_that_takes_the_pods() -> None:
    nodes = flavor("a", gpu="a"), flavor("b", gpu="b")
    both = resource_groups(a=[quota(10)], b=[quota(10)])
    for chosen, expected in (("a", KEPT), ("b", NOT_KEPT)):
        one = waits(spec={"nodeSelector": {"gpu": chosen}})
        assert sizes(take(*beside(*both, of=nodes), one)) == expected


def test_kueue_tries_no_flavor_after_one_of_which_it_cannot_read_the_affinity() -> None:
    nodes = flavor("a", gpu="a"), flavor("b", zone="b")
    wrong = waits(spec=affinity([on("zone", "Like", "b")]))
    for order in ("ab", "ba"):
        groups = resource_groups(**{name: [quota(10)] for name in order})
        assert sizes(take(*beside(*groups, of=nodes), wrong)) == {"a": KEPT, "b": NOT_KEPT}[order[0]]


def test_pods_of_each_kind_have_a_flavor_of_their_own() -> None:
    """The head of a cluster on one, the workers on another: together no flavor would take them."""
    nodes = flavor("a", gpu="a"), flavor("b", gpu="b")
    both = waits(pods=3, spec={"nodeSelector": {"gpu": "a"}})
    (workers,) = both["spec"]["podSets"]
    (head,) = waits(pods=1, spec={"nodeSelector": {"gpu": "b"}})["spec"]["podSets"]
    both["spec"]["podSets"] = [{**head, "name": "head"}, workers]
    groups = resource_groups(a=[quota(10)], b=[quota(10)])
    assert sizes(take(*beside(*groups, of=nodes), both)) == {"train": 17}


@pytest.mark.parametrize("message", ["references missing ResourceFlavor(s): b", ""])
def test_nothing_is_kept_in_a_queue_that_kueue_says_is_inactive(message: str) -> None:
    queue = cluster_queue("green", 10, cohort="all")
    objects = [one for one in beside() if one["metadata"]["name"] != "green" or one["kind"] != "ClusterQueue"]
    for status, expected in (("False", NOT_KEPT), ("True", KEPT)):
        condition = {"type": "Active", "status": status, "reason": "FlavorNotFound", "message": message}
        found = take(*objects, {**queue, "status": {"conditions": [condition]}}, waits())
        assert sizes(found) == expected


@pytest.mark.parametrize(
    ("reason", "said", "expected"),
    [
        ("AdmissionGated", "Admission is gated by: example.com/budget", NOT_KEPT),
        ("AdmissionGated", "Workload requires preemption, but it's gated", KEPT),
        ("OnHold", "no replicas", NOT_KEPT),
        ("Pending", "resources validation failed: spec.podSets[0]: requests must not exceed its limits", NOT_KEPT),
        ("Pending", "resources didn't satisfy LimitRange constraints: spec.podSets[0]", NOT_KEPT),
        ("Pending", FIRST, KEPT),
    ],
)
def test_nothing_is_kept_for_what_kueue_does_not_try_to_admit(
    reason: str, said: str, expected: dict[str, int]
) -> None:
    assert sizes(take(*beside(), waits(said=said, reason=reason))) == expected


def large(**more: Any) -> Object:
    """A Workload whose cpus fit, and whose memory never does."""
    return waits("large", 12, requests={"memory": "1Ti"}, **more)


def test_who_asks_for_more_of_one_resource_than_there_ever_is_stops_no_growth() -> None:
    both = {"resourceGroups": resource_groups(a=[quota(10), quota("64Gi", name="memory")])}
    queues = cluster_queue("blue", 10, cohort="all", **both), cluster_queue("green", 10, cohort="all", **both)
    objects = (*NODES, flavor(), local_queue("blue"), local_queue("green"), *queues, *running(3))
    assert refusal(*objects, waits("fits", 12)).startswith("Workload ads/fits waits")
    assert refusal(*objects, large(least=1)) == "", "not one of its pods fits"
    assert refusal(*objects, large()) == ""
    part = waits("part", 900, requests={"memory": "1Gi"}, least=2)
    assert refusal(*objects, waits("many", 900)) == ""
    twice = waits("twice", 12)
    twice["spec"]["podSets"] += [{**twice["spec"]["podSets"][0], "name": "more"}]
    assert refusal(*objects, twice) == "", "the two kinds of pods together"
    assert sizes(take(*objects, part))["train"] == sizes(take(*objects))["train"]


def test_who_fits_no_flavor_stops_no_growth() -> None:
    queues = cluster_queue("blue", 10, cohort="all"), cluster_queue("green", 10, cohort="all")
    objects = (*NODES, flavor("a", gpu="a"), local_queue("blue"), local_queue("green"), *queues, *running(12))
    assert refusal(*objects, waits("fits", 12)).startswith("Workload ads/fits waits")
    assert refusal(*objects, waits("never", 12, spec={"nodeSelector": {"gpu": "b"}})) == ""


@pytest.mark.parametrize(
    ("strategy", "queue", "said", "expected"),
    [
        ("StrictFIFO", "blue", "", "Workload ads/owner waits for"),
        ("StrictFIFO", "blue", NO_MEMORY, "Kueue admits nobody to ClusterQueue blue (queueingStrategy StrictFIFO)"),
        ("StrictFIFO", "green", NO_MEMORY, ""),
        ("BestEffortFIFO", "blue", NO_MEMORY, ""),
    ],
)
def test_in_a_strict_queue_a_job_says_whom_it_is_behind(strategy: str, queue: str, said: str, expected: str) -> None:
    """Kueue tries the first one again and again, so a larger size would be taken back."""
    queues = [cluster_queue(name, 10, cohort="all", queueingStrategy=strategy) for name in ("blue", "green")]
    objects = (*NODES, flavor(), local_queue("blue"), local_queue("green"), *queues, *running(3))
    one = waits(said=said)
    one["spec"]["queueName"] = queue
    assert refusal(*objects, one).startswith(expected)
    assert bool(refusal(*objects, one)) == bool(expected)


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_a_job_quotes_no_long_text_of_a_workload_of_others(strategy: str) -> None:
    """The API server refuses a status with a sentence that is too long, and the job would have none."""
    name = "x\n" + " " * (strategy == "StrictFIFO") + "y" * 40_000
    said = NO_MEMORY.replace("memory", name) if strategy == "StrictFIFO" else ""
    one = waits(requests={name: "1"}, said=said)
    one["spec"]["queueName"] = "blue"
    queue = cluster_queue("blue", 10, queueingStrategy=strategy)
    found = refusal(*NODES, flavor(), local_queue("blue"), queue, *running(3), one)
    assert "Workload ads/owner" in found
    assert len(found) < 1000
    assert "\n" not in found


def test_a_gated_workload_is_no_part_of_a_strict_queue() -> None:
    queue = cluster_queue("blue", 10, queueingStrategy="StrictFIFO")
    one = waits(said="Admission is gated by: example.com/budget", reason="AdmissionGated")
    one["spec"]["queueName"] = "blue"
    assert refusal(*NODES, flavor(), local_queue("blue"), queue, *running(3), one) == ""


def test_a_job_of_edl_that_no_flavor_takes_says_so_and_keeps_no_node() -> None:
    small = node("n1", status={"allocatable": {"cpu": "10", "memory": "64Gi", "pods": "110"}})
    trainer = {"min-instance": 1, "max-instance": 10, "entrypoint": "x", "resources": {"requests": {"cpu": "1"}}}
    own = kueue_job("owner", "green", size=4, spec={"suspend": True})
    asks = waits("w-owner", 4, spec={"nodeSelector": {"gpu": "b"}}, workload={"job": "owner", "at": 999})
    objects = (small, local_queue("green"), cluster_queue("green", 10), own, asks, job(spec={"trainer": trainer}))
    for one_flavor, expected in ((flavor(), 4), (flavor("a", gpu="a"), 9)):
        plan = plan_snapshot(take(*objects, one_flavor), "maxmin", Limits())
        assert [one.target for one in plan.decisions if one.job != key("owner")] == [expected]
    found = plan.decision(key("owner"))
    assert found is not None
    assert (found.reason.value, found.message) == (
        "QuotaReached",
        "no flavor of ClusterQueue green for cpu takes pods main of Workload ads/w-owner (flavor a: nodeLabels say"
        " gpu=a, and the node selector gpu=b): correct the node selector, the node affinity or the tolerations of the"
        " pods, or the ResourceFlavor",
    )


def test_a_job_of_edl_that_waits_is_planned_on_the_first_flavor_that_takes_it() -> None:
    nodes = flavor("a", gpu="a"), flavor("b", gpu="b")
    groups = resource_groups(a=[quota(10)], b=[quota(10)])
    own = kueue_job("owner", "green", size=4, spec={"suspend": True})
    asks = waits("w-owner", 4, spec={"nodeSelector": {"gpu": "b"}}, workload={"job": "owner"})
    queue = cluster_queue("green", resourceGroups=groups)
    (found,) = take(*NODES, *nodes, local_queue("green"), queue, own, asks).jobs
    assert found.queue == "green/b"


def test_a_training_job_says_which_resource_its_queue_does_not_cover() -> None:
    asks = own_workload(0, 2, state="waiting", message=NO_MEMORY.replace("main", "trainer"))
    objects = (*NODES, flavor(), local_queue("blue"), cluster_queue("blue", "10250m"), queued())
    found = seen(*objects, asks)
    assert found.is_barred
    assert found.refusal
    assert found.refusal.message == (
        "Workload ads/ctr-0 waits in LocalQueue blue of Kueue: ClusterQueue blue does not cover memory, so Kueue"
        " never admits Workload ads/ctr-0: add it to coveredResources of the ClusterQueue, or request none"
    )


def test_a_training_job_says_that_its_minimum_is_more_than_there_ever_is() -> None:
    objects = (*NODES, flavor(), local_queue("blue"), cluster_queue("blue", 1), queued())
    found = seen(*objects, own_workload(0, 2, state="waiting", message=FIRST))
    assert found.refusal
    assert found.refusal.message.endswith(
        "Workload ads/ctr-0 needs 2 cores, and ClusterQueue blue has 1 core at most with all that it may borrow"
        " (flavor a): lower the request, or raise the quota"
    )


def test_a_job_that_runs_keeps_its_size_once_its_flavor_takes_its_pods_no_more() -> None:
    objects = (*NODES, tainted(TAINT), local_queue("blue"), cluster_queue("blue", "10250m"), queued())
    found = seen(*objects, own_workload(0, 2), own_workload(1, 1), *trainers(3))
    assert not found.is_barred
    assert found.refusal
    assert found.refusal.allowed == 3
    assert "(flavor a: taint gpu=5:NoSchedule is not tolerated)" in found.refusal.message
