"""docs/volcano-sessions.md shows what kubectl prints beside Volcano today, except for ages, times, UIDs and names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.e2e.control_plane.nodes import NodeSpec
from tests.volcano.record_sessions import DOCUMENT, FIRST, record, shape
from tests.volcano.scene import MANIFESTS, Scene

Start = Callable[[Sequence[NodeSpec]], Scene]


@pytest.mark.cluster("Volcano runs on a real control plane only")
def test_the_recorded_sessions_are_up_to_date(scene: Start) -> None:
    now = record(scene([FIRST]))
    assert shape(now) == shape(DOCUMENT.read_text()), "run `make volcano-sessions` and review the diff"


def test_every_published_manifest_is_applied_in_a_session() -> None:
    commands = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("$ kubectl apply")]
    names = sorted(path.name for path in MANIFESTS.glob("*.yaml"))
    assert names == sorted(line.rpartition("/")[2] for line in commands)


def test_only_what_differs_between_runs_is_ignored() -> None:
    session = "```console\n$ kubectl get pods\npaddle-cluster-job-1-{pod}   {state}   small-{node}\n```\n"
    first = session.format(pod="x7k2p", state="Running", node=0)
    assert shape(first) == shape(session.format(pod="b4c8d", state="Running", node=2))
    assert shape(first) != shape(session.format(pod="x7k2p", state="Pending", node=0))
