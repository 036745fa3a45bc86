"""Invalid, odd and malicious jobs on a real API server with a controller, with the CRD's rules and without.

What the rules of the CRD refuse is tested in test_resource; here the rules are gone, as they are where somebody has
installed an old or a foreign CRD, and the controller alone stands between such a job and the cluster.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from edl.install.manifests import controller_manifests
from edl.kube.bounds.object_bounds import MAX_BYTES
from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.faults.stage import GROWN, Stage
from tests.e2e.worlds.usage import cpu_seconds, resident_bytes
from tests.worlds.hostile.jobs import CASES
from tests.worlds.hostile.manifests import Case, Object, edited, make_manifest, manifest_of, refused

ANSWERED_S = 60.0
CPU_S = 20.0
"""For some hundred jobs; one naive look at 1e1000000 alone takes longer."""
MEMORY_BYTES = 256 * 2**20
PATIENCE_S = 2.0
MEGABYTE = "x" * 1_000_000
CRD = next(body for body in controller_manifests() if body["kind"] == "CustomResourceDefinition")


def nested(levels: int) -> Any:
    """A list in a list in a list..."""
    innermost: Any = "x"
    for _ in range(levels):
        innermost = [innermost]
    return innermost


def template_of_a_megabyte() -> Object:
    """The small job with a template as large as etcd takes it."""
    annotations = {"note": MEGABYTE}
    return edited("trainer", template={"metadata": {"annotations": annotations}})


SHAPELESS = (
    refused("spec is a text", {**make_manifest(), "spec": "x"}, "spec"),
    refused("spec is a list", {**make_manifest(), "spec": [1, 2]}, "spec"),
    refused("trainer is a number", edited(trainer=7), "trainer"),
    refused("every field is null", {**make_manifest(), "spec": dict.fromkeys(make_manifest()["spec"])}, "trainer"),
    refused("policies of 150 levels", edited(policies=nested(150)), "levels deep"),
    refused("a template of a megabyte", template_of_a_megabyte(), "annotations"),
    refused("ten thousand policies", edited(policies=[{"event": "Any", "action": "AbortJob"}] * 10_000), "policies"),
    refused(
        "ten thousand resources", edited("trainer", resources={"limits": {f"r{i}": 1 for i in range(10_000)}}), ""
    ),
    refused("a number of a million digits", edited(port="9" * 1_000_000), "port"),
)
NEVER_STORED = {"a name in capitals", "no name", "spec is a text", "spec is a list", "trainer is a number"}
"""What the API server itself refuses: what nothing may be called, and what its scale subresource cannot read."""
STORED_AS_WHOLE = {"min is 2.0", "cpu unquoted whole decimal"}
"""Without a schema the API server stores 2.0 as 2, and then nothing is wrong with it."""
HELD = {"memory beyond every cluster": "memory", "a GPU nobody has": "example.com/warp-drive"}


@dataclass
class Meter:
    """What the controller's process uses up.

    Attributes:
        slowest_s: the longest that one of its pages took.
    """

    stage: Stage
    cpu_s: float
    memory_bytes: int
    slowest_s: float = 0.0

    @classmethod
    def start(cls, stage: Stage) -> Meter:
        """Begin to measure."""
        pid = stage.here.controller.pid
        return cls(stage, cpu_seconds(pid), resident_bytes(pid))

    def look(self) -> None:
        """See how long it takes to answer."""
        began_s = time.monotonic()
        assert self.stage.here.controller.answers("/healthz")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

    def used(self) -> tuple[float, int]:
        """CPU seconds and bytes since the start."""
        pid = self.stage.here.controller.pid
        return cpu_seconds(pid) - self.cpu_s, resident_bytes(pid) - self.memory_bytes


@pytest.fixture
def lawless(stage: Stage) -> Iterator[Stage]:
    """The stage with a CRD that accepts everything."""
    kube = stage.here.kube
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{**version, "schema": anything} for version in CRD["spec"]["versions"]]
    # Replaced, not applied: what else the present schema says must go.
    replace(kube, {**CRD, "spec": {**CRD["spec"], "versions": versions}})
    try:
        lawful = edited(port=0)
        kube.wait_until(lambda: is_accepted(kube, lawful), 20, "the rules are gone")
        yield stage
    finally:
        replace(kube, CRD)
        kube.wait_until(lambda: not is_accepted(kube, lawful), 20, "the rules are back")


def replace(kube: Kube, body: Object) -> None:
    """Put an object in the place of the one of its name."""
    stored = kube.get("crd", body["metadata"]["name"])
    metadata = {**body["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
    path = kube.resource("crd").path(None, body["metadata"]["name"])
    kube.request("PUT", path, body={**body, "metadata": metadata})


def is_accepted(kube: Kube, body: Object) -> bool:
    """Whether the API server would store a job."""
    try:
        kube.request("POST", kube.resource("tj").path("default"), query={"dryRun": "All"}, body=body)
    except KubeError:
        return False
    return True


@pytest.mark.cluster("refuses what the path of the scale subresource cannot read")
def test_whatever_the_rules_refuse_fails_without_pods_where_they_are_gone(lawless: Stage) -> None:
    kube, space = lawless.here.kube, lawless.here.plane.namespace("lawless")
    meter = Meter.start(lawless)
    submitted, unstored = submit_all(kube, space)
    assert unstored == NEVER_STORED
    assert len(submitted) >= 100
    statuses: dict[str, Object] = {}

    def unanswered() -> list[str]:
        meter.look()
        statuses.update({j["metadata"]["name"]: j.get("status") or {} for j in kube.list("tj", space)})
        return [c.name for name, c in submitted.items() if not is_answered(statuses[name], c)]

    kube.wait_until(lambda: not unanswered(), ANSWERED_S, "each has its answer", poll_s=0.5)
    lawless.submit("lawful")
    lawless.wait_grown("lawful")
    lawless.assert_only_grown("lawful")
    for name, case in submitted.items():
        assert_judged(case, statuses[name])
    kinds = ("pods", "services", "secrets", "persistentvolumeclaims")
    assert {kind: kube.list(kind, space) for kind in kinds} == {kind: [] for kind in kinds}
    cpu_s, memory_bytes = meter.used()
    print(f"{len(submitted)} jobs: {cpu_s:.1f} s, {memory_bytes / 2**20:.0f} MiB, /healthz {meter.slowest_s:.2f} s")
    assert cpu_s < CPU_S
    assert memory_bytes < MEMORY_BYTES
    assert meter.slowest_s < PATIENCE_S
    for job in kube.list("tj", space):
        kube.delete("tj", job["metadata"]["name"], space)


def submit_all(kube: Kube, space: str) -> tuple[dict[str, Case], set[str]]:
    """Create every job of the table that the rules refuse or hold.

    Returns:
        The cases by the name of their job, and the cases that not even a CRD without rules lets in.
    """
    submitted, unstored = {}, set()
    cases = [c for c in CASES if (not c.accepted or c.name in HELD) and c.name not in STORED_AS_WHOLE]
    for number, case in enumerate([*cases, *SHAPELESS]):
        body = manifest_of(case, f"job-{number}")
        try:
            stored = kube.create(body, space)
        except KubeError as error:
            if error.code not in {400, 422}:
                raise
            unstored.add(case.name)
        else:
            submitted[stored["metadata"]["name"]] = case
    return submitted, unstored


def is_answered(status: Object, case: Case) -> bool:
    """Whether the controller has said what it thinks of a job."""
    return status.get("phase") == "Failed" or (case.accepted and status.get("reason") == "Unschedulable")


def assert_judged(case: Case, status: Object) -> None:
    """The status says which rule is broken, or what no node has."""
    if case.accepted:
        assert status["phase"] == "Pending"
        assert HELD[case.name] in status["explanation"]
        return
    failed = next(c for c in status["conditions"] if c["type"] == "Failed")
    assert (status["phase"], status["reason"]) == ("Failed", "InvalidSpec"), case.name
    assert (failed["status"], failed["reason"]) == ("True", "InvalidSpec"), case.name
    is_too_large = len(json.dumps(case.job)) > MAX_BYTES  # so much is not even decoded
    assert ("its JSON has" if is_too_large else case.says) in failed["message"], case.name
    assert len(failed["message"]) <= 1024
    assert status["trainer"] == {"desired": 0, "ready": 0, "pending": 0}
    assert "completionTime" in status


@pytest.mark.cluster("kubectl")
def test_a_job_that_is_nested_deeper_than_anybody_can_read_fails_alone(stage: Stage) -> None:
    kube, space = stage.here.kube, stage.here.plane.namespace("deep")
    levels = 3000
    body = json.dumps(edited("trainer", template={"spec": {"affinity": {"podAffinity": "HERE"}}}))
    deep = body.replace('"HERE"', '{"a":' * levels + "1" + "}" * levels)
    kube.kubectl("create", "-n", space, "--validate=false", "-f", "-", stdin=deep)
    try:
        stage.submit("shallow")
        stage.wait_grown("shallow")
        stage.assert_only_grown("shallow")

        def says(field: str) -> str:
            return kube.kubectl("get", "tj", "job", "-n", space, "-o", f"jsonpath={field}")

        until(stage, lambda: says("{.status.phase}") == "Failed", "it has failed")
        assert "nested more than 64 levels deep" in says('{.status.conditions[?(@.type=="Failed")].message}')
        assert not kube.list("pods", space)
    finally:
        kube.delete("tj", "job", space)


def test_a_job_whose_minimum_is_raised_above_every_capacity_gives_way_and_comes_back(stage: Stage) -> None:
    kube = stage.here.kube
    stage.submit("ambitious")
    stage.wait_grown("ambitious")
    kube.patch("tj", "ambitious", {"spec": {"trainer": {"min-instance": 9000, "max-instance": 9000}}})
    kube.wait_until(lambda: not stage.pods_of("ambitious"), 30, "it has no pods")
    kube.wait_until(lambda: stage.status("ambitious")["phase"] == "Pending", 10, "it waits")
    assert stage.condition("ambitious", "Admitted")["status"] == "False"
    assert stage.status("ambitious")["reason"] in {"Unschedulable", "MinUnsatisfied"}
    kube.patch("tj", "ambitious", {"spec": {"trainer": {"min-instance": 2, "max-instance": GROWN}}})
    stage.wait_grown("ambitious")


def test_a_maximum_below_the_running_count_costs_the_surplus_and_nothing_else(stage: Stage) -> None:
    stage.submit("capped")
    stage.wait_grown("capped")
    stage.here.kube.patch("tj", "capped", {"spec": {"trainer": {"max-instance": 3}}})
    until(stage, lambda: len(stage.pods_of("capped")) == 1 + 3, "one goes")
    until(stage, lambda: stage.status("capped")["trainer"] == {"desired": 3, "ready": 3, "pending": 0}, "it says so")
    ended = [p["metadata"]["name"] for p in stage.log.ended_trainers() if p["metadata"]["name"].startswith("capped")]
    assert ended == ["capped-trainer-3"]


def test_a_job_that_was_deleted_and_made_again_has_pods_of_its_own_only(stage: Stage) -> None:
    kube = stage.here.kube
    stage.submit("reborn")
    stage.wait_grown("reborn")
    former = stage.uids_of("reborn")
    stage.log.forget("reborn")
    kube.delete("tj", "reborn")
    kube.wait_until(lambda: kube.find("tj", "reborn") is None, 10, "it is gone")
    stage.submit("reborn")
    mine = kube.get("tj", "reborn")["metadata"]["uid"]
    kube.wait_until(lambda: not former & stage.uids_of("reborn"), 60, "the former pods go")
    stage.wait_grown("reborn", timeout_s=60)
    owners = {ref["uid"] for pod in stage.pods_of("reborn") for ref in pod["metadata"]["ownerReferences"]}
    assert owners == {mine}
    assert len(stage.pods_of("reborn")) == 1 + GROWN


@pytest.mark.parametrize(
    "forged",
    [
        {"phase": "Succeeded"},
        {"completionTime": "2020-01-01T00:00:00Z"},
        {"trainer": {"desired": 900, "ready": 900, "pending": 0}, "reason": "Forged", "selector": "a=b"},
        {"conditions": [{"type": "Failed", "status": "True", "reason": "F", "message": "f",
                         "lastTransitionTime": "2020-01-01T00:00:00Z"}]},
        {"phase": None, "conditions": None, "observedGeneration": 99},
    ],
    ids=["phase", "end", "counts", "failed", "erased"],
)  # fmt: skip
def test_a_status_that_somebody_else_wrote_is_put_right(stage: Stage, forged: Object) -> None:
    kube = stage.here.kube
    if kube.find("tj", "forged") is None:
        stage.submit("forged")
    stage.wait_grown("forged")
    pods, before = stage.uids_of("forged"), copy.deepcopy(stage.status("forged"))
    kube.patch("tj", "forged", {"status": forged}, subresource="status")
    volatile = {"conditions", "startTime", "lastResize"}

    def is_right() -> bool:
        now = stage.status("forged")
        return {k: v for k, v in now.items() if k not in volatile} == {
            k: v for k, v in before.items() if k not in volatile
        } and [(c["type"], c["status"], c["reason"]) for c in now.get("conditions") or []] == [
            (c["type"], c["status"], c["reason"]) for c in before["conditions"]
        ]

    until(stage, is_right, "the status is what it was")
    assert stage.uids_of("forged") == pods


def until(stage: Stage, condition: Callable[[], object], what: str) -> None:
    """Wait for something that takes a plan or two."""
    stage.here.kube.wait_until(condition, 20, what)
