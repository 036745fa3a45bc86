"""A pasted job in the live cluster: new, changed, or refused with what is wrong."""

from __future__ import annotations

import pytest

from edl.dashboard.pasted import MAX_BYTES, with_pasted
from edl.errors import ConfigError
from edl.model.cluster import ClusterSnapshot
from tests.dashboard.page_cluster import PASTED
from tests.worlds.builders import make_job, make_nodes

CLUSTER = ClusterSnapshot(1000.0, nodes=make_nodes(2), jobs=(make_job("new", namespace="ads", trainers=1),))


def test_a_new_job_joins_the_others_at_the_present_time() -> None:
    pasted = with_pasted(CLUSTER, PASTED.replace("name: new", "name: other"))
    assert [str(job.key) for job in pasted.snapshot.jobs] == ["ads/new", "ads/other"]
    assert pasted.snapshot.jobs[1].created_s == CLUSTER.observed_at_s
    assert pasted.snapshot.nodes == CLUSTER.nodes
    assert pasted.warnings == ()


def test_an_existing_job_gets_the_spec_and_keeps_its_pods() -> None:
    (job,) = with_pasted(CLUSTER, PASTED).snapshot.jobs
    assert (job.min_trainers, job.max_trainers) == (2, 4)
    assert job.pods == CLUSTER.jobs[0].pods
    assert job.uid == CLUSTER.jobs[0].uid
    assert job.created_s == CLUSTER.jobs[0].created_s


def test_a_pasted_status_is_not_believed() -> None:
    finished = PASTED.replace("name: new", "name: other") + "status: {phase: Succeeded}\n"
    other = with_pasted(CLUSTER, finished).snapshot.jobs[1]
    assert (other.finished, other.status) == (False, None)


def test_unknown_fields_and_other_objects_are_warned_about() -> None:
    text = PASTED.replace("  fault_tolerant", "  tolerant: 1\n  fault_tolerant") + (
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: huge}\nstatus: {allocatable: {cpu: '900'}}\n"
    )
    pasted = with_pasted(CLUSTER, text)
    assert pasted.snapshot.nodes == CLUSTER.nodes
    assert any("tolerant" in warning for warning in pasted.warnings)
    assert any("nodes and pods are those of the cluster" in warning for warning in pasted.warnings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the pasted text is empty"),
        ("x" * (MAX_BYTES + 1), "longer than 64 KiB"),
        ("a: [", "the pasted text, line 2.*not YAML"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "has no TrainingJob"),
        ("apiVersion: paddlepaddle.org/v2\nkind: TrainingJob\nmetadata: {name: x}\n", "which edl does not read"),
        (
            "---\n".join(PASTED.replace("name: new", f"name: j{i}") for i in range(21)),
            "has 21 jobs; paste at most 20",
        ),
        ("a: " + "[" * 5_000, "the pasted text"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "too large after its YAML aliases|is not a Kubernetes object|no apiVersion",
        ),
    ],
    ids=["empty", "long", "broken", "no job", "version", "many", "deep", "bomb"],
)
def test_a_text_that_cannot_be_used_is_refused_with_the_rule(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        with_pasted(CLUSTER, text)
