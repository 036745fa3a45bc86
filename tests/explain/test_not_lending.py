"""Why a running job lends no CPU although lending is on: one sentence for each cause."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from edl.controller.planning import report_snapshot
from edl.explain.job_text import print_job_report
from edl.explain.not_lending import why_nothing_is_lent
from edl.model.jobs import Job
from edl.model.lending import Lending, RunningRequest
from edl.model.limits import LendingLimits, Limits
from edl.model.names import LABEL_LENDING
from edl.model.tenants import TenantRule, Tenants
from tests.worlds.builders import make_job, make_nodes, make_snapshot

ON = Limits(lending=LendingLimits(surplus_cpu_request=0.1))
CLOSED = Limits(
    tenants=Tenants((TenantRule("default", lending=Lending.NEVER),)), lending=LendingLimits(surplus_cpu_request=0.1)
)


def running(trainers: int = 3, cpu: float = 1) -> Job:
    return make_job("a", trainers=trainers, max_trainers=3, cpu=cpu, on=("n000",))


def with_request(job: Job, request: RunningRequest) -> Job:
    return replace(job, pods=tuple(replace(pod, running_request=request) for pod in job.pods))


def why(job: Job, limits: Limits = ON, labels: tuple[tuple[str, str], ...] = ()) -> str:
    nodes = tuple(replace(node, labels=(*node.labels, *labels)) for node in make_nodes(1))
    return why_nothing_is_lent(job, make_snapshot(nodes, (job,)), limits)


@pytest.mark.parametrize(
    ("change", "limits", "said"),
    [
        (lambda job: replace(job, lending=Lending.NEVER), ON, "spec.elasticity.lending is Never"),
        (lambda job: job, CLOSED, "the file of --tenants keeps namespace default from lending"),
        (lambda job: replace(job, fault_tolerant=False), ON, "lends only with lending: All"),
        (lambda _: running(1), ON, "it runs with its minimum"),
        (lambda _: running(cpu=0.01), ON, "its trainers request hardly any CPU"),
        (lambda job: job, ON, "they are Guaranteed (requests equal limits), or their kubelet"),
        (lambda job: with_request(job, RunningRequest(1000, 100, 1000, "Deferred")), ON, "(Deferred)"),
        (lambda job: with_request(job, RunningRequest(1000, 1000, 1000)), ON, "flag --lend-by-resize"),
    ],
)
def test_each_cause_has_its_sentence(change: Callable[[Job], Job], limits: Limits, said: str) -> None:
    assert said in why(change(running()), limits)


def test_a_label_of_the_nodes_is_a_cause() -> None:
    assert (
        why(running(), labels=((LABEL_LENDING, "Never"),))
        == "its nodes have the label paddlepaddle.org/lending=Never"
    )


@pytest.mark.parametrize("lending", [Lending.SURPLUS, Lending.ALL])
def test_a_trainer_of_the_minimum_may_lend_only_if_all_may(lending: Lending) -> None:
    assert ("minimum" in why(replace(running(1), lending=lending))) is (lending is Lending.SURPLUS)


def test_nothing_is_said_of_a_job_that_lends_or_does_not_run_or_while_lending_is_off() -> None:
    job = running()
    lends = replace(job, pods=(*job.pods[:2], replace(job.pods[2], lent_cpu_milli=900)))
    assert (why(lends), why(make_job("a")), why(job, Limits())) == ("", "", "")


def test_another_job_that_lends_shows_that_lending_is_on() -> None:
    never, lends = replace(running(), lending=Lending.NEVER), make_job("b", trainers=2, on=("n000",))
    lends = replace(lends, pods=(lends.pods[0], replace(lends.pods[1], lent_cpu_milli=900)))
    for jobs, said in (((never, lends), "spec.elasticity.lending is Never"), ((never,), "")):
        assert why_nothing_is_lent(never, make_snapshot(make_nodes(1), jobs), Limits()) == said


def test_the_report_has_the_sentence_after_the_account() -> None:
    job = replace(running(), lending=Lending.NEVER)
    snapshot, out = make_snapshot(make_nodes(1), (job,)), io.StringIO()
    print_job_report(report_snapshot(snapshot, job.key, "", ON), snapshot, Console(file=out, width=100))
    assert "  Lends no CPU: spec.elasticity.lending is Never" in out.getvalue().splitlines()[2]
