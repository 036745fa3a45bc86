"""Statuses and annotations that neither kubelets nor kube-scheduler nor edl wrote: they cost others nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from edl.explain.decision import decide
from edl.kube.translate.decoders import NODES, PODS, TRAINING_JOBS, Quarantined
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.planner.policies.registry import policy_named
from tests.kube.translate.test_pods_hostile import TRAINERS, hostile
from tests.worlds.rules.scenes import Object, job, members, nodes

LATE, EARLY = "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"
NUMBERS = [0, -1, 1, 2**31 - 1, 2**63 - 1, -(2**63), 2**64, 1e300, True, "-5", "1e9999", "0-999999999"]
TEXTS: list[Any] = [
    None,
    "",
    "x" * 1000,
    "\x1b[2J",
    "n0",
    "gone",
    "not a time",
    LATE,
    EARLY,
    "2026-01-05T10:00:00.999Z",
    [],
    {},
]
HELPLESS = "0/10 nodes are available: 10 cannot allocate all claims. preemption: 0/10 nodes are available: 10 "
PHASES = ["Pending", "Running", "Failed", "Succeeded", "Suspended"]
ANNOTATIONS = ("planned-node", "pinned", "declared-cpu", "requests", "intent", "journal")
MOST = 16
"""Two waiting pods of all cores of a node: what they could take of training anyway, by their requests."""


class Forger:
    """Writes statuses, each with fields of any kind."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - repeatable, no secret

    def any(self, *usual: Any) -> Any:
        return self.rng.choice([*usual, *usual, self.rng.choice([*NUMBERS, *TEXTS])])

    def some(self, made: Any, most: int = 3) -> list[Any]:
        return [made() for _ in range(self.rng.randrange(most + 1))]

    def container(self) -> Object:
        state = {
            "startedAt": self.any(EARLY),
            "exitCode": self.any(1),
            "reason": self.any("OOMKilled", "ErrImagePull"),
        }
        return {
            "name": self.any("c", "trainer", "master"),
            "image": self.any(),
            "restartCount": self.any(1),
            "state": {self.rng.choice(["running", "terminated", "waiting"]): {**state, "message": self.any()}},
            "lastState": {"terminated": state},
            "resources": {"requests": {"cpu": self.any("1"), "memory": self.any("1Gi")}},
            "allocatedResources": {"cpu": self.any("1")},
        }

    def condition(self) -> Object:
        return {
            "type": self.any("PodScheduled", "Ready", "DisruptionTarget", "PodResizePending", "Admitted", "Failed"),
            "status": self.any("True", "False"),
            "reason": self.any("Unschedulable", "Infeasible", "PreemptionByScheduler"),
            "message": self.any(HELPLESS + "Preemption is not helpful.", 'persistentvolumeclaim "x" not found'),
            "lastTransitionTime": self.any(LATE),
        }

    def pod(self) -> Object:
        return {
            "phase": self.any(*PHASES),
            "reason": self.any("Evicted", "Preempting", "NodeShutdown"),
            "message": self.any(),
            "conditions": self.some(self.condition),
            "nominatedNodeName": self.any("n0", "n5", "gone"),
            "podIP": self.any("127.0.0.1"),
            "startTime": self.any(LATE),
            "qosClass": self.any("Burstable"),
            "containerStatuses": self.some(self.container),
            "initContainerStatuses": self.some(self.container),
        }

    def trouble(self) -> Object:
        return {"node": self.any("n0", "n1"), "time": self.any(LATE), "waits": self.any(3), "confirmed": True}

    def job(self) -> Object:
        counts = {"desired": self.any(5), "ready": self.any(5), "pending": self.any(0)}
        speed = {"instances": self.any(2), "samplesPerSecond": self.any(1e9), "seconds": self.any(1)}
        resize = {"time": self.any(LATE), "from": self.any(1), "to": self.any(0), "voluntaryTime": self.any(LATE)}
        return {
            "phase": self.any(*PHASES),
            "conditions": self.some(self.condition),
            "trainer": counts,
            "startTime": self.any(LATE),
            "completionTime": self.any(EARLY),
            "lastResize": {**resize, "seconds": self.any(1)},
            "failures": self.any(3),
            "dataset": {name: self.any(1) for name in ("epoch", "done", "total", "unsaved")},
            "throughput": self.some(lambda: speed),
            "goodput": self.some(lambda: {**speed, "globalBatch": self.any(64), "efficiency": self.any(0.5)}),
            "globalBatch": self.any(64),
            "resizeSeconds": self.any(1),
            "lendingPrice": self.any(1),
            "completed": self.any("0-9999"),
            "lending": {"cpu": self.any("100"), "slowed": self.any(1)},
            "nodeTroubles": self.some(self.trouble),
            "qosClass": self.any("Guaranteed"),
        }

    def members(self) -> list[Object]:
        """The pods of the job, with annotations of edl and odd times of deletion."""
        found = members("evil", "n0", "n1")
        for pod in found:
            values = {
                f"paddlepaddle.org/{name}": self.any("true", "n0", "1000", "-1", '{"a":1}') for name in ANNOTATIONS
            }
            pod["metadata"] |= {"namespace": "mallory", "annotations": values}
            if self.rng.random() < 0.3:
                pod["metadata"]["deletionTimestamp"] = self.rng.choice([LATE, EARLY])
        return found


def read(objects: Iterable[Object]) -> ClusterSnapshot:
    """The snapshot of what can be decoded."""
    found: dict[str, list[Any]] = {"Node": [], "Pod": [], "TrainingJob": []}
    decoders: dict[str, Any] = {"Node": NODES, "Pod": PODS, "TrainingJob": TRAINING_JOBS}
    for body in objects:
        one = decoders[body["kind"]].from_bytes(json.dumps(body).encode())
        if not isinstance(one, Quarantined):
            found[body["kind"]].append(one)
    return Translator().snapshot(
        ClusterObjects(nodes=found["Node"], pods=found["Pod"], jobs=found["TrainingJob"]), 1.8e9
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_forged_status_takes_trainers_of_others_or_ends_a_decision(seed: int) -> None:
    forger = Forger(seed)
    evil = job("evil", 1, 5)
    evil["metadata"]["namespace"] = "mallory"
    waiting = [hostile(f"h{n}", {"cpu": 8}, **forger.rng.choice([{}, {"schedulerName": "nobody"}])) for n in range(2)]
    pods = [*forger.members(), *waiting, hostile("bound", {"cpu": 100}, nodeName="n3")]
    forged = [{**pod, "status": forger.pod()} for pod in pods]
    honest = [job("good", 2, 70), *members("good", *TRAINERS[:60])]
    plan = decide(
        read([*nodes(10), *honest, {**evil, "status": forger.job()}, *forged]), policy_named("maxmin"), Limits()
    )
    good = plan.decision(JobKey("default", "good"))
    assert good is not None
    assert len(good.victims) <= MOST
