"""Request pods are neither pods of their job nor foreign pods; nobody else can make one."""

from __future__ import annotations

from edl.kube.translate.snapshot import Translator
from edl.model.cluster import NodeRequest
from edl.model.names import JobKey
from edl.model.node_groups import ScaleUp
from tests.worlds.raw_objects import Object, job, node, owned_by, pod, take, the_job

LABELS = {"paddlepaddle.org/requests-node-for": "ctr", "paddlepaddle.org/node-group": "spot"}


def request(uid: str = "uid-ctr", node_name: str = "") -> Object:
    made = pod("ctr-node-0", spec={"nodeName": node_name} if node_name else {})
    made["metadata"]["labels"] = LABELS
    made["metadata"]["ownerReferences"] = [owned_by(uid)] if uid else []
    return made


def test_a_request_pod_of_a_job_is_a_node_request_with_and_without_a_node() -> None:
    for bound in ("", "n1"):
        found = take(node(), job(), request(node_name=bound))
        assert found.pods == ()
        assert found.jobs[0].pods == ()
        (only,) = found.node_requests
        assert isinstance(only, NodeRequest)
        assert (only.job, only.group, only.is_open) == (JobKey("ads", "ctr"), "spot", not bound)


def test_a_pod_with_the_label_that_the_job_does_not_own_uses_its_node() -> None:
    for uid in ("", "another"):
        found = take(node(), job(), request(uid, "n1"))
        assert found.node_requests == ()
        assert [p.name for p in found.pods] == ["ctr-node-0"]


def test_a_request_pod_follows_its_job() -> None:
    translator = Translator()
    objects = (node(), request(node_name="n1"))
    assert take(*objects, translator=translator).node_requests == ()
    assert len(take(*objects, job(), translator=translator).node_requests) == 1
    assert take(*objects, job(uid="a-new-one"), translator=translator).node_requests == ()


def test_scale_up_is_read_and_never_is_the_default() -> None:
    assert the_job(node(), job()).scale_up is ScaleUp.NEVER
    body = job()
    body["spec"]["elasticity"] = {"scaleUp": "Full"}
    assert the_job(node(), body).scale_up is ScaleUp.FULL
    body["spec"]["elasticity"] = {"scaleUp": "Sometimes"}
    assert "scaleUp" in the_job(node(), body).problem
