"""Bugs in alerts, dashboards and the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edl.errors import PermanentError
from tests.planted import Right, bug, targets

MONITORING = "install/test_alerts_and_dashboards.py"


@bug(
    "an alert waits for a metric that edl does not export",
    at=targets.ALERTS,
    caught_by=f"{MONITORING}::test_every_expression_names_exported_metrics",
)
def alert_on_unknown_metric(right: Sequence[Any]) -> tuple[Any, ...]:
    return replace(right[0], expr="max(edl_round_total) > 0"), *right[1:]


@bug(
    "Prometheus renames the labels of jobs",
    at=targets.OPERATOR_OBJECTS,
    caught_by=f"{MONITORING}::test_monitors_select_objects_that_exist",
)
def labels_renamed(right: Right) -> Right:
    def wrong() -> dict[str, Any]:
        objects: dict[str, Any] = right()
        for endpoint in objects["servicemonitor.yaml"]["spec"]["endpoints"]:
            endpoint["honorLabels"] = False
        return objects

    return wrong


@bug(
    "no dashboard shows one of the metrics",
    at=targets.DASHBOARDS,
    caught_by=f"{MONITORING}::test_every_metric_has_a_panel",
)
def metric_not_drawn(right: Right) -> Right:
    return lambda: json.loads(json.dumps(right()).replace("edl_quarantined_objects", "edl_leader"))


@bug(
    "edl plan and edl explain ignore the limits of the controller",
    at=targets.READ_LIMITS,
    caught_by="cli/test_plan.py::test_plan_and_explain_keep_to_the_limits_of_the_controller",
)
def limits_ignored(right: Right) -> Right:
    return lambda settings: replace(right(settings), max_load_desired=1.0, serving_headroom=0)


@bug(
    "edl scale says that a job which has ended was scaled",
    at=targets.TRAINER_BOUNDS,
    caught_by="cli/test_jobs.py::test_scale_of_a_job_that_has_ended_says_that_nothing_changes",
)
def end_of_the_job_ignored(right: Right) -> Right:
    async def wrong(client: Any, name: str) -> tuple[int, int]:
        try:
            bounds: tuple[int, int] = await right(client, name)
        except PermanentError:
            return 1, 6
        return bounds

    return wrong
