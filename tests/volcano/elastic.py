"""The published job of the CTR article with the annotations of edl, and a controller that resizes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.e2e.worlds.harness import World
from tests.volcano.scene import MANIFESTS, Scene, machine

Object = dict[str, Any]
JOB = "ctr-volcano"
PSERVERS, TRAINERS = f"{JOB}-pserver", f"{JOB}-trainer"
NODES = (machine("one", 6), machine("two", 6))
"""Room for ten trainers beside two pservers."""


@contextmanager
def elastic_job(here: Scene, low: int, high: int, *, grown: int | None = None) -> Iterator[World]:
    """The job beside a running controller, once it has grown.

    Args:
        here: a cluster of `NODES`.
        low: its min-instance.
        high: its max-instance.
        grown: how many trainers to wait for; None for `high`.
    """
    world = here.with_edl()
    with world.controller:
        here.kube.create(elastic(low, high))
        count = high if grown is None else grown
        here.wait(lambda: len(here.running(TRAINERS)) == count, f"it has {count} trainers")
        yield world


def elastic(low: int, high: int) -> Object:
    """The published job, which restarts when a pod is evicted, with the annotations of edl."""
    job: Object = yaml.safe_load((MANIFESTS / "ctr-volcano.yaml").read_text())
    asks = {"elastic": "true", "min-instance": str(low), "max-instance": str(high)}
    job["metadata"]["annotations"] = {f"paddlepaddle.org/{name}": value for name, value in asks.items()}
    return job


def events(here: Scene, name: str) -> dict[str, str]:
    """The last message of each event of edl on a Volcano Job, by reason."""
    found = here.kube.list("events", "default", fields=f"involvedObject.kind=Job,involvedObject.name={name}")
    return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}
