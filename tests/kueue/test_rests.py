"""When waves take a cohort for being at rest, and what their figures count."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.kueue.rests import LONGEST_S, REST_S, UNUSED_S, Rests
from tests.kueue.wave_results import part


@dataclass
class Cohort:
    """Changes at given times, of which the one at `admitted_s` ends the wait of the owner."""

    changes_s: list[float]
    admitted_s: float = 0.0
    now_s: float = 0.0
    owners: dict[str, float] = field(default_factory=lambda: {"owner-1": 0.0})

    @property
    def last_s(self) -> float:
        """When the last change was."""
        return max((at_s for at_s in self.changes_s if at_s <= self.now_s), default=0.0)

    def changed_after(self, since_s: float) -> list[str]:
        """What has changed since then."""
        return [f"pods web-{at_s:g}" for at_s in self.changes_s if since_s < at_s <= self.now_s]

    def judge(self) -> None:
        """See whether the owner is admitted."""
        if self.now_s >= self.admitted_s:
            self.owners.clear()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def rests(self) -> Rests:
        """What is tested."""
        return Rests(self, self.judge, self.owners, now_s=lambda: self.now_s, sleep=self.sleep)


def test_all_is_used_and_nobody_waits() -> None:
    cohort = Cohort([1.0])
    cohort.rests().wait_used(lambda: True)
    assert 1.0 + REST_S <= cohort.now_s < 1.0 + REST_S + 1.0


def test_an_owner_waits_although_all_is_used_and_nothing_changes_for_a_while() -> None:
    """Kueue on a busy machine takes many seconds for a Job, while others use all quota."""
    cohort = Cohort([1.0, 11.0], admitted_s=11.0)
    cohort.rests().wait_used(lambda: True)
    assert not cohort.owners
    assert cohort.now_s >= 11.0


def test_an_owner_that_is_never_admitted_ends_the_rest() -> None:
    cohort = Cohort([1.0], admitted_s=1e6)
    cohort.rests().wait_used(lambda: True)
    assert cohort.owners
    assert 1.0 + UNUSED_S <= cohort.now_s < 1.0 + REST_S + UNUSED_S + 1.0


def test_a_cohort_that_never_comes_to_rest_says_who_waits_and_what_changes() -> None:
    cohort = Cohort([float(at_s) for at_s in range(100)], admitted_s=1e6)
    with pytest.raises(AssertionError, match=r"owners that wait: owner-1; changed of late: pods web-.*pods web-60"):
        cohort.rests().wait()
    assert cohort.now_s < LONGEST_S + 1.0


def test_pods_beyond_what_is_allowed_do_not_make_up_for_unused_quota_elsewhere() -> None:
    """Fixed owners and minimums may need more than the nodes have beside serving."""
    assert part([(14, 12), (10, 12)]) == 22 / 24
