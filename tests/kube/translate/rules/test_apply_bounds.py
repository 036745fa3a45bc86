"""Many waiting pods with rules of their own: what they cost is bounded, and other namespaces are served."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.translate.rules.apply import KINDS_AT_ONCE
from edl.model.cluster import ClusterSnapshot
from tests.worlds.rules.scenes import (
    HOSTNAME,
    ZONE,
    Object,
    apart,
    blocked,
    job,
    members,
    near,
    nodes,
    pod,
    snapshot,
    spread,
)


def kinds(count: int, namespace: str) -> list[Object]:
    """Waiting pods that each spread by a selector of their own."""
    return [
        pod(
            f"{namespace}-{number}",
            labels={"app": f"w{number}"},
            namespace=namespace,
            topologySpreadConstraints=spread(HOSTNAME, app=f"w{number}"),
        )
        for number in range(count)
    ]


def test_the_kinds_of_one_namespace_do_not_hold_up_those_of_another() -> None:
    many, few = kinds(KINDS_AT_ONCE, "many"), kinds(3, "few")
    why = blocked(snapshot(nodes(2), many, few))
    assert not any(name.startswith("few") for name in why)
    assert len(why) == KINDS_AT_ONCE // 2
    assert set(why.values()) == {
        f"rule: edl reads the rules of {KINDS_AT_ONCE // 2} other kinds of waiting pods of its namespace first"
    }


def ruled_job(name: str, namespace: str, **spec: Any) -> Object:
    """A job whose trainers spread by a selector of their own."""
    template = {"topologySpreadConstraints": spread(HOSTNAME, app=name)}
    made = job(name, 1, 2, template, **spec)
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def waits_for_others(of: ClusterSnapshot) -> set[str]:
    """The namespaces of jobs whose rules are not read now."""
    return {
        one.key.namespace
        for one in of.jobs
        if any("edl reads the rules of" in rule.why for rule in one.trainer.placement.rules)
    }


def test_waiting_jobs_of_one_namespace_do_not_hold_up_those_of_another() -> None:
    many = [ruled_job(f"job-{number:03d}", "many") for number in range(KINDS_AT_ONCE)]
    seen = snapshot(nodes(2), many, [ruled_job("one", "few")])
    late = [
        one for one in seen.jobs if any("edl reads the rules" in rule.why for rule in one.trainer.placement.rules)
    ]
    assert {one.key.namespace for one in late} == {"many"}
    assert len(late) == KINDS_AT_ONCE // 2
    assert late[0].trainer.placement.rules[0].why == (
        f"rule: edl reads the rules of {KINDS_AT_ONCE // 2} other pods of waiting jobs of its namespace first"
    )


def test_suspended_jobs_do_not_count_and_jobs_with_pods_do_not_wait() -> None:
    idle = [ruled_job(f"a-{number:03d}", "default", suspend=True) for number in range(KINDS_AT_ONCE)]
    wait = [ruled_job(f"b-{number:03d}", "default") for number in range(KINDS_AT_ONCE)]
    runs = [ruled_job("c", "default"), *members("c", "n0")]
    assert not waits_for_others(snapshot(nodes(2), idle, wait, runs))


@pytest.mark.parametrize(
    "rule",
    [
        {"affinity": apart(app="web")},
        {"affinity": near(ZONE, app="web")},
        {"topologySpreadConstraints": spread(ZONE, app="web")},
    ],
)
def test_pods_of_one_kind_count_once(rule: Object) -> None:
    alike = [pod(f"web-{number}", cpu="1m", **rule) for number in range(4)]
    others = kinds(KINDS_AT_ONCE - 1, "default")
    assert not any(
        "edl reads the rules of" in why for why in blocked(snapshot(nodes(4, "ab"), alike, others)).values()
    )
