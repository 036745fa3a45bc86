"""What kube-scheduler says, by predicate."""

from __future__ import annotations

import pytest

from edl.shadow.document import Predicate
from edl.shadow.scheduler_messages import predicates_of


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("0/4 nodes are available: 4 Insufficient cpu.", {Predicate.RESOURCES: 4}),
        (
            "0/5 nodes are available: 2 Insufficient cpu, 3 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are"
            " available: 5 No preemption victims found for incoming pod.",
            {Predicate.RESOURCES: 5},
        ),
        (
            "0/3 nodes are available: 1 Too many pods, 2 node(s) were unschedulable.",
            {Predicate.RESOURCES: 1, Predicate.TAINTS: 2},
        ),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }, 2 node(s)"
            " didn't match Pod's node affinity/selector.",
            {Predicate.TAINTS: 1, Predicate.SELECTOR: 2},
        ),
        (
            "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.",
            {Predicate.PORTS: 2},
        ),
        (
            "0/6 nodes are available: 1 node(s) didn't match pod affinity rules, 2 node(s) didn't satisfy existing"
            " pods anti-affinity rules, 3 node(s) didn't match pod topology spread constraints.",
            {Predicate.BETWEEN_PODS: 6},
        ),
        (
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
            {Predicate.VOLUMES: 1},
        ),
        ('0/1 nodes are available: persistentvolumeclaim "data" not found.', {Predicate.VOLUMES: 1}),
        ("0/3 nodes are available: 3 node(s) had volume node affinity conflict.", {Predicate.VOLUMES: 3}),
        ("0/3 nodes are available: 3 cannot allocate all claims.", {Predicate.CLAIMS: 3}),
        ('resourceclaim "gpu" not found', {Predicate.CLAIMS: 1}),
        ("0/3 nodes are available: 3 something nobody has heard of.", {Predicate.OTHER: 3}),
        ("no nodes available to schedule pods", {Predicate.OTHER: 1}),
        ("", {Predicate.OTHER: 1}),
    ],
)
def test_each_reason_has_a_predicate(message: str, expected: dict[Predicate, int]) -> None:
    assert predicates_of(message) == expected
