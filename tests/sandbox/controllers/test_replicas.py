"""The steps of a rollout, and Endpoints."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import pytest

from edl.sandbox.controllers.cluster import endpoint_subsets
from edl.sandbox.controllers.replicas import rollout, template_hash

Object = dict[str, Any]


def deployment(replicas: int, **strategy: Any) -> Object:
    return {"spec": {"replicas": replicas, "strategy": strategy}}


def replica_set(replicas: int, ready: int | None = None) -> Object:
    is_ready = replicas if ready is None else ready
    return {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "readyReplicas": is_ready}}


def step(wanted: Object, new: Object, *old: Object) -> list[int]:
    """The numbers of the new ReplicaSet and of the old ones after one step."""
    changed = {id(one): count for one, count in rollout(wanted, new, list(old))}
    return [changed.get(id(one), one["spec"]["replicas"]) for one in (new, *old)]


@pytest.mark.parametrize(("now", "wanted"), [(0, 5), (5, 2), (3, 3), (4, 0)])
def test_without_old_pods_the_number_is_set_at_once(now: int, wanted: int) -> None:
    assert step(deployment(wanted), replica_set(now)) == [wanted]


def test_a_rolling_update_adds_the_surge_and_takes_what_may_be_missing() -> None:
    assert step(deployment(4), replica_set(0), replica_set(4)) == [1, 3]


def test_a_rolling_update_waits_for_ready_pods() -> None:
    assert step(deployment(4), replica_set(2, ready=0), replica_set(3)) == [2, 3]


def test_old_pods_that_are_not_ready_go_first() -> None:
    assert step(deployment(4), replica_set(1, ready=0), replica_set(4, ready=3)) == [1, 3]


def test_recreate_ends_the_old_pods_before_it_starts_new_ones() -> None:
    wanted = deployment(3, type="Recreate")
    assert step(wanted, replica_set(0), replica_set(3)) == [0, 0]
    gone = {"spec": {"replicas": 0}, "status": {"replicas": 1}}
    assert step(wanted, replica_set(0), gone) == [0, 0]
    assert step(wanted, replica_set(0), replica_set(0)) == [3, 0]


def limit_of(value: int | str, count: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    exact = int(value[:-1]) * count / 100
    return ceil(exact) if up else floor(exact)


@pytest.mark.parametrize("surge", [0, 1, "25%", "100%"])
@pytest.mark.parametrize("unavailable", [0, 1, "50%"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_rolling_update_ends_and_never_leaves_its_limits(
    surge: int | str, unavailable: int | str, count: int
) -> None:
    wanted = deployment(count, rollingUpdate={"maxSurge": surge, "maxUnavailable": unavailable})
    most = count + limit_of(surge, count, up=True)
    least = count - (limit_of(unavailable, count, up=False) or (0 if most > count else 1))
    new, old = replica_set(0), replica_set(count)
    for _ in range(4 * count):
        numbers = step(wanted, new, old)
        new, old = replica_set(numbers[0]), replica_set(numbers[1])
        assert least <= sum(numbers) <= most
    assert (new["spec"]["replicas"], old["spec"]["replicas"]) == (count, 0)


def test_a_template_has_its_own_name() -> None:
    assert template_hash({"a": 1, "b": 2}) == template_hash({"b": 2, "a": 1})
    assert template_hash({"a": 1}) != template_hash({"a": 2})


def test_endpoints_are_ready_or_not() -> None:
    def pod(name: str, ready: str) -> Object:
        return {
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "x"}},
            "spec": {"nodeName": "n"},
            "status": {"podIP": f"127.9.0.{name}", "conditions": [{"type": "Ready", "status": ready}]},
        }

    service = {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    (subset,) = endpoint_subsets(service, [pod("1", "True"), pod("2", "False")])
    assert [one["ip"] for one in subset["addresses"]] == ["127.9.0.1"]
    assert [one["ip"] for one in subset["notReadyAddresses"]] == ["127.9.0.2"]
    assert subset["ports"] == [{"port": 8080, "protocol": "TCP"}]
