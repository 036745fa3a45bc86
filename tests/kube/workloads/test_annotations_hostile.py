"""Whatever the owner of a workload writes into its annotations, the snapshot is taken and no other job is touched."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.explain.decision import decide
from edl.kube.workloads.annotations import ELASTIC, INDEXES, MAX, MIN, QUEUE, RECORD, TASK, read_wish
from edl.kube.workloads.volcano_tasks import STOPPED
from edl.model.limits import Limits
from edl.planner.policies.registry import policy_named
from tests.worlds.effort import examples
from tests.worlds.raw_objects import Object, batch_job, node, ray_cluster, take, volcano_job

ODD_NUMBERS = st.sampled_from([float("inf"), float("nan"), 1e308, 10**400, 2**63, 2**31, -1, -5, 0.5, True, None])
VALUES = st.one_of(
    ODD_NUMBERS,
    st.integers(0, 20),
    st.text(max_size=5),
    st.sampled_from(["2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]),
)
FIELDS = st.sampled_from(
    ["to", "from", "time", "reason", "voluntaryTime", "lostSeconds", "minAvailable", "tasks", "trainer", "pserver"]
)
BODIES = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4), max_leaves=8
).map(json.dumps)
SIZES = st.fixed_dictionaries(
    {
        "minAvailable": VALUES,
        "tasks": st.dictionaries(st.sampled_from(["trainer", "pserver"]), st.lists(VALUES, min_size=1, max_size=3)),
    }
).map(json.dumps)
OTHERS = st.dictionaries(
    st.sampled_from([RECORD, MIN, MAX, QUEUE, TASK, INDEXES]), BODIES | st.text(max_size=8), max_size=2
)
ANNOTATIONS = st.builds(lambda others, sizes: {**others, STOPPED: sizes}, OTHERS, SIZES | BODIES)
LIMITS = Limits(deadline_s=1e9)


@given(annotations=ANNOTATIONS, count=st.sampled_from([0, 1, 3, 2**31 - 1]))
@examples(400)
def test_no_annotation_stops_a_plan_or_changes_what_another_job_gets(annotations: Object, count: int) -> None:
    hostile = (
        batch_job(name="hostile", annotations=annotations, spec={"parallelism": count}),
        volcano_job(name="hostile", annotations=annotations),
        ray_cluster(name="hostile", annotations=annotations),
    )
    snapshot = take(node("n1"), node("n2"), batch_job(name="honest"), *hostile)
    plan = decide(snapshot, policy_named("maxmin"), LIMITS)
    (honest,) = [decision for decision in plan.decisions if decision.job.name.endswith("honest")]
    assert honest.target >= 2, "its minimum fits beside those of any other job here"


@pytest.mark.parametrize("make", [batch_job, volcano_job, ray_cluster])
@pytest.mark.parametrize("body", ["[" * 100_000, "1" * 10_000, '{"to": 1' + "0" * 5_000 + "}", "\ud800"])
def test_a_body_that_no_parser_takes_counts_as_none(make: Callable[..., Object], body: str) -> None:
    (job,) = take(make(annotations={RECORD: body, STOPPED: body})).jobs
    assert job.status is None or job.status.last_resize is None


def test_few_of_many_annotations_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def note(name: str, *_: object) -> list[str]:
        compared.append(name)
        return []

    monkeypatch.setattr("edl.kube.workloads.annotations.get_close_matches", note)
    many = {f"paddlepaddle.org/x{number:04d}": "" for number in range(6000)}
    assert not read_wish(many | {ELASTIC: "true", MIN: "1", MAX: "2"}).problem
    assert len(compared) == 20
