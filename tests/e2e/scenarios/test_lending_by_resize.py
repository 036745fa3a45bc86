"""Trainers that run lend their CPU, and are given it back, without a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.pod_log import PodLog

FLAGS = ("--surplus-cpu-request", "0.1", "--lend-by-resize")
SURPLUS = 3


def burstable_job(lending: str, **trainer: Any) -> dict[str, Any]:
    """A job whose trainers have a CPU limit above their request, so that they are Burstable from birth."""
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "1Gi"}}
    elasticity = {"lending": lending, "cooldownSeconds": 1}
    return training_job(
        "ctr",
        min_trainers=2,
        max_trainers=2 + SURPLUS,
        elasticity=elasticity,
        trainer={"resources": resources, **trainer},
    )


def requests(here: World) -> list[str]:
    """What the trainers request, and their kubelets have granted."""
    found = []
    for pod in facts.trainers(here.pods(), "ctr"):
        (spec,), (status,) = pod["spec"]["containers"], pod["status"]["containerStatuses"]
        wanted, has = spec["resources"]["requests"]["cpu"], status["resources"]["requests"]["cpu"]
        found.append(wanted if wanted == has else f"{has} -> {wanted}")
    return sorted(found)


def set_lending(here: World, lending: str) -> None:
    here.kube.patch("trainingjobs", "ctr", {"spec": {"elasticity": {"lending": lending}}})


def lending_of(here: World) -> object:
    return here.kube.get("trainingjobs", "ctr")["status"].get("lending")


def born(here: World) -> Mapping[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in facts.trainers(here.pods(), "ctr")}


def test_a_running_trainer_lends_its_cpu_and_gets_it_back(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0), *FLAGS)
    here.kube.create(serving())
    kept, lent = ["2"] * (2 + SURPLUS), [*["2"] * 2, *["200m"] * SURPLUS]
    with here.controller, PodLog(here.kube) as log:
        here.submit(burstable_job("Never"))
        here.kube.wait_until(lambda: here.running("ctr") == 2 + SURPLUS, 60, "every trainer runs")
        assert requests(here) == kept
        before = born(here)

        set_lending(here, "Surplus")
        here.kube.wait_until(lambda: requests(here) == lent, 30, "the surplus lends")
        here.kube.wait_until(lambda: lending_of(here) == {"cpu": "5400m", "slowed": 0}, 20, "the status shows it")

        set_lending(here, "Never")
        here.kube.wait_until(lambda: requests(here) == kept, 30, "it is given back")
        here.kube.wait_until(lambda: lending_of(here) is None, 20, "the status shows it")
        assert born(here) == before, "the same pods"
        assert not log.causes(), "nobody was deleted"


def is_pending(here: World) -> bool:
    """True if some kubelet says that it has not carried out a change."""
    conditions = (one for pod in here.pods() for one in pod["status"]["conditions"])
    return any(one["type"] == "PodResizePending" for one in conditions)


def test_a_trainer_whose_kubelet_refuses_keeps_its_request(control_plane: Callable[..., ControlPlane]) -> None:
    here = World(control_plane(mix="small", pod_delete_s=1.0), *FLAGS)
    with here.controller:
        here.submit(burstable_job("Never"))
        here.kube.wait_until(lambda: here.running("ctr") == 2 + SURPLUS, 60, "every trainer runs")
        here.kube.annotate("pods", "ctr-trainer-2", resize="Infeasible")
        here.kube.annotate("pods", "ctr-trainer-3", resize="Deferred")
        before = born(here)

        def is_settled(lent: int) -> bool:
            wanted = [*["2"] * (2 + SURPLUS - lent), *["200m"] * lent]
            return requests(here) == wanted and not is_pending(here)

        set_lending(here, "Surplus")
        here.kube.wait_until(lambda: is_settled(1), 30, "one lends, and two have what they had")
        here.kube.wait_until(lambda: lending_of(here) == {"cpu": "1800m", "slowed": 0}, 20, "the status shows it")

    for name in ("ctr-trainer-2", "ctr-trainer-3"):
        here.kube.annotate("pods", name, resize=None)
    with here.controller:
        here.kube.wait_until(lambda: is_settled(3), 30, "the next controller finds that all can lend")
        assert born(here) == before, "the same pods"
