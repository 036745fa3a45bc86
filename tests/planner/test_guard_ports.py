"""Host ports in `check`: hundreds of names on many nodes cost little, and every clash is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.worst_worlds import host_ports
from edl.model.limits import Limits
from edl.model.resources import HOST_PORT_PREFIX, Resources, port_at_every_address
from edl.planner import guard
from edl.planner.decide import study
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_snapshot
from tests.worlds.small_clusters import plan_for

EVERYWHERE = f"{HOST_PORT_PREFIX}TCP/8080"


def test_each_name_is_read_once_however_many_nodes_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = host_ports(60, 40, 1).snapshot
    plan = study(snapshot, policy_named("maxmin"), Limits(deadline_s=600.0)).plan
    names = sum(name.startswith(HOST_PORT_PREFIX) for job in snapshot.jobs for name in job.trainer.request)
    pods = sum(count for decision in plan.decisions for _, count in decision.nodes)
    assert pods > 4 * len(snapshot.jobs)
    read: list[str] = []
    strip = port_at_every_address

    def counted(name: str) -> str:
        read.append(name)
        return strip(name)

    monkeypatch.setattr(guard, "port_at_every_address", counted)

    assert not check(snapshot, plan)

    assert len(read) <= names


@pytest.mark.parametrize(
    ("first", "second", "clashes"),
    [
        (EVERYWHERE, EVERYWHERE, True),
        (EVERYWHERE, f"{EVERYWHERE}/10.0.0.1", True),
        (f"{EVERYWHERE}/10.0.0.1", EVERYWHERE, True),
        (f"{EVERYWHERE}/10.0.0.1", f"{EVERYWHERE}/10.0.0.1", True),
        (f"{EVERYWHERE}/10.0.0.1", f"{EVERYWHERE}/10.0.0.2", False),
        (EVERYWHERE, f"{HOST_PORT_PREFIX}UDP/8080", False),
    ],
)
def test_two_pods_of_one_node_clash_if_they_want_one_port(first: str, second: str, clashes: bool) -> None:
    ports = {"a": first, "b": second}
    plain = make_snapshot(
        (make_node("n0", 8),), tuple(make_job(name, min_trainers=1, max_trainers=1) for name in ports)
    )
    wanted = tuple(
        replace(
            job,
            trainer=replace(job.trainer, request=job.trainer.request + Resources.of({ports[job.key.name]: 1})),
        )
        for job in plain.jobs
    )

    problems = check(replace(plain, jobs=wanted), plan_for(plain))

    assert any("overcommitted" in problem for problem in problems) == clashes


def test_two_trainers_of_one_job_clash_on_one_node() -> None:
    plain = make_snapshot((make_node("n0", 8),), (make_job("a", min_trainers=2, max_trainers=2),))
    (job,) = plain.jobs
    trainer = replace(job.trainer, request=job.trainer.request + Resources.of({EVERYWHERE: 1}))

    problems = check(replace(plain, jobs=(replace(job, trainer=trainer),)), plan_for(plain))

    assert problems == (f"node n0: overcommitted; pods would request 2 of {EVERYWHERE}, but only 1 is allocatable",)
