"""docs/kueue-sessions.md shows what kubectl prints beside Kueue today, except for ages, times, UIDs and names."""

from __future__ import annotations

import pytest

from tests.kueue.record_sessions import DOCUMENT, record, shape
from tests.kueue.scene import Cluster


@pytest.mark.cluster("Kueue runs on a real control plane only")
def test_the_recorded_sessions_are_up_to_date(cluster: Cluster) -> None:
    assert shape(record(cluster)) == shape(DOCUMENT.read_text()), "run `make kueue-sessions` and review the diff"


def test_only_what_differs_between_runs_is_ignored() -> None:
    session = "```console\n$ kubectl get workloads\ntrain-{uid}-{number}   blue   {admitted}\n```\n"
    first = session.format(uid="0a1b2c3d", number=4, admitted="True")
    assert shape(first) == shape(session.format(uid="d3c2b1a0", number=6, admitted="True"))
    assert shape(first) != shape(session.format(uid="0a1b2c3d", number=4, admitted="False"))
