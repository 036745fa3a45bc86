"""Which running trainers request less, and which request again what they declare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.lifecycle.lent_cpu.running_requests import REFUSED_FOR_S, changed_requests, keep_refusals
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.lending import Lending, RunningRequest
from edl.model.limits import LendingLimits, Limits
from edl.model.names import LABEL_LENDING, JobKey
from edl.model.pods import Pod, PodPhase
from edl.model.progress import Measured
from edl.model.status import JobStatus
from edl.model.tenants import TenantRule, Tenants
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot

LENDS = Limits(lending=LendingLimits(surplus_cpu_request=0.1, running=True))
KEEPS = Limits(lending=LendingLimits(running=True))


def with_request(pod: Pod, requested: int = 1000, granted: int = 0, refusal: str = "") -> Pod:
    """A trainer that declares one core."""
    running = RunningRequest(1000, requested, granted or requested, refusal)
    return replace(pod, running_request=running, lent_cpu_milli=1000 - running.charged_milli)


def job_of(*requested: int, lending: Lending = Lending.SURPLUS, min_trainers: int = 1) -> Job:
    """A job on one node whose trainers request so many millicores."""
    job = make_job("ctr", trainers=len(requested), min_trainers=min_trainers, on=("n",))
    pods = tuple(with_request(pod, milli) for pod, milli in zip(job.pods, requested, strict=True))
    return replace(job, lending=lending, pods=pods)


def world(*jobs: Job, pods: tuple[Pod, ...] = (), cpu: float = 8, label: str = "") -> ClusterSnapshot:
    node = make_node("n", cpu=cpu, labels={LABEL_LENDING: label} if label else None)
    return replace(make_snapshot((node,), jobs, pods), resizes_pods=True)


def changes(
    snapshot: ClusterSnapshot, limits: Limits, busy: set[str] | None = None, held: set[str] | None = None
) -> dict[str, int]:
    found = changed_requests(snapshot, limits, busy or set(), held or set())
    return {change.pod: change.cpu_milli for some in found.values() for change in some}


def test_the_surplus_requests_its_part_and_the_minimum_all() -> None:
    assert changes(world(job_of(1000, 1000, 1000)), LENDS) == {"ctr-trainer-1": 100, "ctr-trainer-2": 100}


def test_what_is_as_it_should_be_stays() -> None:
    assert changes(world(job_of(1000, 100)), LENDS) == {}
    assert changes(world(job_of(1000, 1000)), KEEPS) == {}


def test_nothing_changes_without_the_flag_or_the_subresource() -> None:
    here = world(job_of(1000, 1000))
    assert changes(here, replace(LENDS, lending=replace(LENDS.lending, running=False))) == {}
    assert changes(replace(here, resizes_pods=False), LENDS) == {}


@pytest.mark.parametrize(
    ("lending", "label", "limits"),
    [
        (Lending.NEVER, "", LENDS),
        (Lending.SURPLUS, "Never", LENDS),
        (Lending.SURPLUS, "", KEEPS),
        (Lending.ALL, "", replace(LENDS, tenants=Tenants((TenantRule("default", lending=Lending.NEVER),)))),
    ],
    ids=["job", "node", "operator", "namespace"],
)
def test_a_trainer_that_may_lend_no_more_requests_what_it_declares(
    lending: Lending, label: str, limits: Limits
) -> None:
    here = world(job_of(1000, 100, lending=lending), label=label)
    assert changes(here, limits) == {"ctr-trainer-1": 1000}


def test_a_trainer_that_belongs_to_the_minimum_now_requests_what_it_declares() -> None:
    assert changes(world(job_of(1000, 100, min_trainers=2)), LENDS) == {"ctr-trainer-1": 1000}


def test_no_request_is_raised_into_room_that_serving_took() -> None:
    lenders = job_of(100, 100, 100, lending=Lending.NEVER)
    web = make_serving("web", cpu=6, node="n")
    assert changes(world(lenders, pods=(web,)), LENDS) == {"ctr-trainer-0": 1000}, "900m of 1700m"
    assert changes(world(lenders, pods=(replace(web, node="", nominated="n"),)), LENDS) == {"ctr-trainer-0": 1000}
    full = make_serving("web", cpu=7, node="n")
    assert changes(world(lenders, pods=(full,)), LENDS) == {}


def test_a_pod_that_is_terminating_keeps_its_room() -> None:
    web = replace(make_serving("web", cpu=7, node="n"), terminating=True)
    assert changes(world(job_of(100, 100, lending=Lending.NEVER), pods=(web,)), LENDS) == {}


def test_no_request_is_raised_while_serving_waits_or_where_pods_are_about_to_start() -> None:
    lender = job_of(100, lending=Lending.NEVER)
    assert changes(world(lender, pods=(make_serving("web"),)), LENDS) == {}
    assert changes(world(lender), LENDS, busy={"n"}) == {}
    assert changes(world(lender), LENDS) == {"ctr-trainer-0": 1000}


def test_a_change_that_is_under_way_is_waited_for() -> None:
    job = job_of(1000, 1000)
    under_way = with_request(job.pods[1], requested=100, granted=1000)
    assert changes(world(replace(job, pods=(job.pods[0], under_way))), KEEPS) == {}


@pytest.mark.parametrize("refusal", ["Deferred", "Infeasible"])
def test_a_trainer_keeps_what_its_kubelet_granted(refusal: str) -> None:
    job = job_of(1000, 100, lending=Lending.NEVER)
    up = with_request(job.pods[1], requested=1000, granted=100, refusal=refusal)
    assert changes(world(replace(job, pods=(job.pods[0], up))), LENDS) == {"ctr-trainer-1": 100}
    down = with_request(job.pods[1], requested=100, granted=1000, refusal=refusal)
    lends = replace(job, lending=Lending.SURPLUS, pods=(job.pods[0], down))
    assert changes(world(lends, cpu=2), LENDS) == {"ctr-trainer-1": 1000}


def test_a_refused_trainer_is_left_alone_for_a_time() -> None:
    job = job_of(1000, 1000)
    refused = world(replace(job, pods=(job.pods[0], with_request(job.pods[1], 100, 1000, "Infeasible"))))
    held = keep_refusals({}, refused, 50.0)
    assert held == {job.pods[1].uid: 50.0 + REFUSED_FOR_S}
    again = world(job)
    held = keep_refusals(held, again, 49.0 + REFUSED_FOR_S)
    assert changes(again, LENDS, held=set(held)) == {}
    held = keep_refusals(held, again, 50.0 + REFUSED_FOR_S)
    assert changes(again, LENDS, held=set(held)) == {"ctr-trainer-1": 100}


def test_a_trainer_whose_kubelet_cannot_resize_keeps_its_request() -> None:
    job = job_of(1000, 1000, 1000)
    pods = (*job.pods[:2], replace(job.pods[2], running_request=None))
    assert changes(world(replace(job, pods=pods)), LENDS) == {"ctr-trainer-1": 100}


def test_a_synchronous_job_lends_evenly_or_not_at_all() -> None:
    job = replace(job_of(1000, 1000, lending=Lending.ALL), fault_tolerant=False)
    assert changes(world(job), LENDS) == {"ctr-trainer-0": 100, "ctr-trainer-1": 100}
    unable = replace(job, pods=(job.pods[0], replace(job.pods[1], running_request=None)))
    assert changes(world(unable), LENDS) == {}
    uneven = replace(job, pods=(with_request(job.pods[0], 100), *unable.pods[1:]))
    assert changes(world(uneven), LENDS) == {"ctr-trainer-0": 1000}
    starting = replace(job.pods[1], running_request=None, lent_cpu_milli=900, phase=PodPhase.PENDING)
    assert changes(world(replace(job, pods=(job.pods[0], starting))), LENDS) == {"ctr-trainer-0": 100}


def test_a_synchronous_job_does_not_lend_while_one_of_its_trainers_is_left_alone() -> None:
    job = replace(job_of(1000, 1000, lending=Lending.ALL), fault_tolerant=False)
    assert changes(world(job), LENDS, held={job.pods[1].uid}) == {}


def test_what_a_trainer_declares_goes_with_the_change() -> None:
    (found,) = changed_requests(world(job_of(1000, 1000)), LENDS, (), ()).values()
    assert [(change.pod_uid, change.declared_milli) for change in found] == [("default-ctr-t1", 1000)]


def test_a_request_goes_first_to_the_job_that_loses_most_by_lending() -> None:
    cheap = job_of(100, lending=Lending.NEVER)
    dear = replace(cheap, key=JobKey("default", "dear"), uid="dear")
    dear = replace(dear, pods=tuple(replace(pod, name="dear-trainer-0", uid="dear-0") for pod in dear.pods))
    dear = replace(dear, status=JobStatus(measured=Measured(lending_price=2.0)))
    web = make_serving("web", cpu=6.5, node="n")
    assert changes(world(cheap, dear, pods=(web,)), LENDS) == {"dear-trainer-0": 1000}, "1.3 of 1.8 cores"
    even = replace(dear, status=None)
    assert changes(world(cheap, even, pods=(web,)), LENDS) == {"ctr-trainer-0": 1000}
