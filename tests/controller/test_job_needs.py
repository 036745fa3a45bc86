"""CPU requests of running trainers, before and after the pods that may start are found."""

from __future__ import annotations

from dataclasses import dataclass

from edl.clock import SystemClock
from edl.controller.backoff import Backoff
from edl.controller.job_needs import JobNeeds
from edl.model.actions import ResizePod
from edl.model.lending import Lending
from edl.model.names import JobKey, Role
from tests.lifecycle.test_running_requests import LENDS, job_of, world
from tests.worlds.fakes import FakeRecorder

CTR = JobKey("default", "ctr")


@dataclass(frozen=True)
class Starting:
    job: JobKey = CTR
    role: Role = Role.TRAINER
    node: str = "n"


def requests(starts: tuple[Starting, ...] | None) -> list[ResizePod]:
    """The changes for a trainer that may lend no more, and so requests again what it declares."""
    needs = JobNeeds(SystemClock(), FakeRecorder(), Backoff(), LENDS, lambda _: None)
    snapshot = world(job_of(1000, 100, lending=Lending.NEVER))
    return [change for some in needs.read(snapshot, {}, starts, frozenset()).requests.values() for change in some]


def test_a_request_is_raised_if_nothing_starts_on_the_node() -> None:
    assert len(requests(())) == 1


def test_no_request_is_raised_on_a_node_that_gets_a_pod() -> None:
    assert requests((Starting(),)) == []


def test_no_request_changes_before_it_is_known_which_nodes_get_pods() -> None:
    assert requests(None) == []
