"""Which jobs a ResourceQuota limits."""

from __future__ import annotations

import pytest

from edl.model.cluster import ResourceQuota
from edl.model.limits import Quota
from edl.model.names import JobKey
from edl.planner.quota import QuotaTable
from tests.worlds.builders import make_job
from tests.worlds.fakes import Compared

EXEMPT = tuple(JobKey("default", f"job-{number:04}") for number in range(0, 4000, 2))


@pytest.mark.parametrize(("number", "is_limited"), [(0, False), (1, True), (3998, False), (3999, True)])
def test_of_thousands_of_jobs_a_quota_leaves_out_a_few_comparisons_find_one(number: int, is_limited: bool) -> None:
    job = make_job(f"job-{number:04}")
    exempt = tuple(JobKey(Compared(key.namespace), key.name) for key in EXEMPT)
    namespaced = ResourceQuota("default", "small", (), exempt=exempt)
    quota = Quota("small", (), "default", exempt=exempt)
    Compared.times = 0
    assert namespaced.limits(job.key) is is_limited
    assert QuotaTable((quota,)).of(job) == ((quota,) if is_limited else ())
    assert 0 < Compared.times < 100


def test_a_quota_of_another_namespace_limits_no_job() -> None:
    assert not ResourceQuota("ads", "small", ()).limits(JobKey("default", "a"))
