"""docs/kubectl.md shows what kubectl prints today, except for ages, times, UIDs and column widths."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.record_sessions import DOCUMENT, record, shape
from tests.e2e.worlds.harness import World


@pytest.mark.cluster("kubectl")
def test_the_recorded_sessions_are_up_to_date(control_plane: Callable[..., ControlPlane]) -> None:
    now = record(World(control_plane(mix="small")))
    assert shape(now) == shape(DOCUMENT.read_text()), "run `make sessions` and review the diff"


def test_only_what_differs_between_runs_is_ignored() -> None:
    session = "```console\n$ kubectl get tj\nNAME PHASE AGE\nexample   Running   {age}\n```\n"
    assert shape(session.format(age="5s")) == shape(session.format(age="2m10s"))
    assert shape(session.format(age="5s")) != shape(session.format(age="5s").replace("Running", "Pending"))
    events = "```console\n$ kubectl describe tj a\nEvents:\nNormal  Admitted  5s  a\nNormal  ScaledUp  4s  b\n```\n"
    swapped = "```console\n$ kubectl describe tj a\nEvents:\nNormal  ScaledUp  4s  b\nNormal  Admitted  5s  a\n```\n"
    assert shape(events) == shape(swapped)
    assert shape(events) != shape(events.replace("ScaledUp", "ScaledDown"))
    watch = "```console\n$ kubectl get tj -w\nNAME PHASE\na Pending\n{middle}a Running\n^C\n```\n"
    assert shape(watch.format(middle="a Creating\n")) == shape(watch.format(middle=""))
    assert shape(watch.format(middle="")) != shape(watch.format(middle="").replace("Running", "Failed"))
