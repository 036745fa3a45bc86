"""The request and the placement of a pod, as kube-scheduler computes them."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.translate.decoders import PODS, Quarantined
from edl.kube.translate.objects import PodSpec, PodStatus
from edl.kube.translate.shapes import ANY_ADDRESS, limits_of, placement_of, qos_of, shape_of
from edl.model.resources import NodeTerm, QosClass, Toleration
from tests.worlds.raw_objects import GI, MI, Object, container, sidecar


def request(spec: Object, status: Object | None = None) -> dict[str, int]:
    """The request of a pod without `pods: 1`."""
    decoded = PODS.from_dict({"spec": spec, "status": status})
    assert not isinstance(decoded, Quarantined), decoded
    amounts = shape_of(decoded.spec or PodSpec(), decoded.status).request.as_dict()
    assert amounts.pop("pods") == 1
    return amounts


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container("500m", "1Gi"), container("1", "1Gi")]}, {"cpu": 1500, "memory": 2 * GI}),
        # The larger of all containers together and of each init container.
        ({"containers": [container("1")], "initContainers": [container("3")]}, {"cpu": 3000}),
        ({"containers": [container("4")], "initContainers": [container("3"), container("2")]}, {"cpu": 4000}),
        # A native sidecar runs beside the containers, and beside the init containers after it.
        ({"containers": [container("1")], "initContainers": [sidecar("500m")]}, {"cpu": 1500}),
        ({"containers": [container("1")], "initContainers": [sidecar("500m"), container("2")]}, {"cpu": 2500}),
        ({"containers": [container("1")], "initContainers": [container("2"), sidecar("500m")]}, {"cpu": 2000}),
        (
            {"containers": [container("1")], "initContainers": [sidecar("1"), container("2"), sidecar("3")]},
            {"cpu": 5000},
        ),
        # Overhead is added to the maximum.
        (
            {"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
            {"cpu": 1250, "memory": 120 * MI},
        ),
        # Without a request the limit is the request, for each resource.
        (
            {"containers": [{"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}]},
            {"cpu": 1000, "memory": GI},
        ),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}, {"nvidia.com/gpu": 2}),
        ({"containers": [{"resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}}}]}, {"nvidia.com/gpu": 1}),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": None}}}]}, {"cpu": 1000}),
        ({"containers": [{"resources": {"requests": {"ephemeral-storage": "2Gi"}}}]}, {"ephemeral-storage": 2 * GI}),
        # Pod-level resources replace the sum of the resources that they name.
        (
            {"containers": [container("1", "1Gi")], "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}}},
            {"cpu": 3000, "memory": GI},
        ),
        ({"containers": [{}], "resources": {"limits": {"cpu": "4"}}}, {"cpu": 4000}),
        ({"containers": [container("1")], "resources": {"limits": {"cpu": "4"}}}, {"cpu": 1000}),
        # Each host port counts once; those of init containers are free again when the pod runs.
        (
            {
                "containers": [
                    {"ports": [{"containerPort": 80, "hostPort": 8080}, {"hostPort": 53, "protocol": "UDP"}]}
                ]
            },
            {"hostport/TCP/8080": 1, "hostport/UDP/53": 1},
        ),
        ({"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]}, {"hostport/TCP/80": 1}),
        ({"containers": [{"ports": [{"containerPort": 80}]}]}, {}),
        ({"containers": [{}], "initContainers": [{"ports": [{"hostPort": 1}]}]}, {}),
        (
            {"containers": [{}], "initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 1}]}]},
            {"hostport/TCP/1": 1},
        ),
        # The same port at two addresses is two ports; 0.0.0.0 means every address.
        (
            {
                "containers": [
                    {"ports": [{"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 81, "hostIP": ANY_ADDRESS}]},
                    {"ports": [{"hostPort": 80, "hostIP": "10.0.0.2"}, {"hostPort": 82, "hostIP": ""}]},
                    {"ports": [{"hostPort": 82, "hostIP": "10.0.0.2"}]},
                ]
            },
            {
                "hostport/TCP/80/10.0.0.1": 1,
                "hostport/TCP/80/10.0.0.2": 1,
                "hostport/TCP/81": 1,
                "hostport/TCP/82": 1,
            },
        ),
        # Huge pages are counted in bytes for each page size, devices in pieces.
        (
            {
                "containers": [
                    {
                        "resources": {
                            "limits": {"hugepages-2Mi": "64Mi", "rdma/hca": "1"},
                            "requests": {"hugepages-2Mi": "64Mi", "example.com/fpga": 2},
                        }
                    }
                ]
            },
            {"hugepages-2Mi": 64 * MI, "rdma/hca": 1, "example.com/fpga": 2},
        ),
        (
            {"containers": [{}], "resources": {"requests": {"hugepages-1Gi": "2Gi"}}},
            {"hugepages-1Gi": 2 * GI},
        ),
        (
            {
                "containers": [{"resources": {"limits": {"cpu": "1", "hugepages-2Mi": "64Mi"}}}],
                "resources": {"limits": {"cpu": "3", "hugepages-2Mi": "128Mi"}},
            },
            {"cpu": 1000, "hugepages-2Mi": 128 * MI},
        ),
        # Absent and null fields request nothing.
        ({"containers": None, "initContainers": None, "overhead": None, "resources": None}, {}),
        ({"containers": [{"resources": None}, {"resources": {"requests": None, "limits": None}, "ports": None}]}, {}),
        # Numbers as in a hand-written file, rounded up.
        ({"containers": [{"resources": {"requests": {"cpu": 0.5, "memory": 1000}}}]}, {"cpu": 500, "memory": 1000}),
        ({"containers": [container("0.0001")]}, {"cpu": 1}),
    ],
)
def test_the_request_of_a_pod_equals_that_of_kube_scheduler(spec: Object, expected: dict[str, int]) -> None:
    assert request(spec) == expected


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ([container("3")], 3000),
        ([sidecar("100m"), container("2")], 2100),  # kubernetes/website 57244
        ([container("2"), sidecar("100m")], 2000),
        ([sidecar("1"), container("2"), sidecar("3")], 5000),
        ([sidecar("1"), sidecar("1"), container("4")], 6000),
    ],
)
def test_limits_add_up_as_requests_do(init: list[Object], expected: int) -> None:
    asked = {"containers": [container("1")], "initContainers": init}
    assert request(asked) == {"cpu": expected}
    limited = {kind: [_limited(one) for one in containers] for kind, containers in asked.items()}
    decoded = PODS.from_dict({"spec": limited})
    assert not isinstance(decoded, Quarantined), decoded
    assert limits_of(decoded.spec or PodSpec()).as_dict() == {"cpu": expected}


def _limited(one: Object) -> Object:
    return one | {"resources": {"limits": one["resources"]["requests"]}}


@pytest.mark.parametrize(
    ("given", "conditions", "expected"),
    [
        ({"requests": {"cpu": "3"}}, [], 3000),
        ({"requests": {"cpu": "1"}}, [], 2000),
        ({"requests": {"cpu": "1"}}, [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}], 1000),
        ({"requests": {"cpu": "1"}}, [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}], 2000),
    ],
)
def test_during_a_resize_in_place_the_larger_amount_counts(
    given: Object, conditions: list[Object], expected: int
) -> None:
    status = {"containerStatuses": [{"name": "c", "resources": given}], "conditions": conditions}
    assert request({"containers": [container("2")]}, status) == {"cpu": expected}


@pytest.mark.parametrize(
    ("given", "allocated", "reason", "expected"),
    [
        ({"requests": {"cpu": "3"}}, {"cpu": "3"}, "", 3000),  # it shrinks, and still has what it had
        ({"requests": {"cpu": "1"}}, {"cpu": "3"}, "", 3000),
        ({"requests": {"cpu": "1"}}, {"cpu": "1"}, "Deferred", 2000),
        ({"requests": {"cpu": "1"}}, {"cpu": "1"}, "Infeasible", 1000),
        (None, {"cpu": "3"}, "", 2000),  # a kubelet that does not resize whole pods
    ],
)
def test_so_it_does_while_a_whole_pod_is_resized(
    given: Object | None, allocated: Object, reason: str, expected: int
) -> None:
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    status = {"resources": given, "allocatedResources": allocated, "conditions": conditions}
    spec = {"resources": {"requests": {"cpu": "2"}}, "containers": [container("500m")]}
    assert request(spec, status) == {"cpu": expected}


def test_an_affinity_without_terms_selects_no_node() -> None:
    spec = PODS.from_dict(
        {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}}
    )
    assert not isinstance(spec, Quarantined)
    assert placement_of(spec.spec or PodSpec()).required == (NodeTerm(),)


def test_the_order_in_which_a_placement_is_written_does_not_matter() -> None:
    tolerations = [{"key": "a", "operator": "Exists"}, {"key": "b", "value": "x", "effect": "NoSchedule"}]
    one = _placement({"tolerations": tolerations, "nodeSelector": {"x": "1", "a": "2"}})
    two = _placement({"tolerations": tolerations[::-1], "nodeSelector": {"a": "2", "x": "1"}})
    assert one == two
    assert one.tolerations == (Toleration("a", "Exists"), Toleration("b", "Equal", "x", "NoSchedule"))


def test_a_toleration_with_a_time_limit_makes_no_node_eligible() -> None:
    added = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    assert _placement({"tolerations": [added]}) == _placement({})


def _placement(spec: Object) -> Any:
    pod = PODS.from_dict({"spec": spec})
    assert not isinstance(pod, Quarantined)
    return placement_of(pod.spec or PodSpec())


def test_a_status_of_a_pod_may_be_absent() -> None:
    decoded = PODS.from_dict({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": None})
    assert not isinstance(decoded, Quarantined)
    assert shape_of(decoded.spec or PodSpec(), PodStatus()).request.as_dict() == {"pods": 1}


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "qos"),
    [
        ({"containers": [{"name": "a"}]}, QosClass.BEST_EFFORT),
        ({"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}, QosClass.BEST_EFFORT),
        ({"containers": [{"name": "a", "resources": {"requests": {"cpu": 0}}}]}, QosClass.BEST_EFFORT),
        ({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1m"}}}]}, QosClass.BURSTABLE),
        ({"containers": [{"name": "a", "resources": {"limits": BOTH}}]}, QosClass.GUARANTEED),
        ({"containers": [{"name": "a", "resources": {"requests": BOTH, "limits": BOTH}}]}, QosClass.GUARANTEED),
        ({"containers": [{"name": "a", "resources": {"requests": BOTH}}]}, QosClass.BURSTABLE),
        (
            {"containers": [{"name": "a", "resources": {"requests": {"cpu": "500m"}, "limits": BOTH}}]},
            QosClass.BURSTABLE,
        ),
        ({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}, QosClass.BURSTABLE),
        ({"containers": [{"name": "a", "resources": {"limits": BOTH}}, {"name": "b"}]}, QosClass.BURSTABLE),
        (
            {"containers": [{"name": "a", "resources": {"limits": BOTH}}], "initContainers": [{"name": "i"}]},
            QosClass.BURSTABLE,
        ),
        ({"containers": [{"name": "a"}], "resources": {"limits": BOTH}}, QosClass.GUARANTEED),
    ],
)
def test_the_class_is_the_one_that_kubernetes_gives(spec: Object, qos: QosClass) -> None:
    pod = PODS.from_dict({"spec": spec})
    assert not isinstance(pod, Quarantined)
    assert qos_of(pod.spec or PodSpec()) is qos
