"""What the scene shows of each metric, panel and alert, and the tables of it in docs/prometheus.md.

`python -m tests.prometheus.expected` prints the tables.
"""

from __future__ import annotations

import re

from edl.install.alerts import ALERTS
from edl.install.dashboards import dashboards
from edl.install.recording_rules import RECORDING_RULES
from edl.install.reference import CONTROLLER_METRICS, MASTER_METRICS

_NAME = re.compile(r"[a-z_:][a-z0-9_:]*")

# Panels with a value that never changes in the scene, or with none, and why.
STEADY = {
    "Admitted": "the job stays admitted",
    "Epoch": "the first epoch stays open",
    "Failed decisions per minute": "none fails",
    "Jobs that are not admitted": "one job is too large all the time",
    "Jobs that wait, by queue": "one job is too large all the time",
    "Journal blocked": "the disk has capacity",
    "Changed files refused": "no file changes",
    "Kubernetes objects ignored": "all objects are readable",
    "Borrowed by queues": "the one queue owns more than it needs",
    "CPU that trainers lend": "no trainer lends any",
    "Nodes on demand": "no nodes are expected",
    "Leader": "one controller leads from the first scrape on",
    "Plans cut short per minute": "none is cut short",
    "Standby replicas": "there is none",
    "Nodes that trainers avoid": "no node breaks trainers",
    "Trainers that serving slows": "no trainer lends CPU",
    "Trainers that hang": "the job does not train in step",
    "Wait of serving pods for a node": "one wave of serving pods, which wait equally long",
}
EMPTY = {
    "Samples per second": "edl measures a speed in quiet windows of 30 s, and the scene has none",
    "Samples per second, by job": "as above",
    "Training time lost to a resize, mean": "as above",
    "Price of lending, by job": "no trainer lends CPU",
}

# Metrics that may not move in the scene -> the test that sees them move.
_METRICS, _LOOP = "tests/observability/test_metrics.py", "tests/controller/loop/test_loop_metrics.py"
_MASTER = "tests/master/test_metrics.py"
_FAILURES = f"{_METRICS}::test_rounds_writes_and_failures_are_counted"
_PLAN = f"{_METRICS}::test_a_plan_sets_targets_gap_and_duration"
_REPLICA = f"{_METRICS}::test_leadership_admission_and_objects_left_out_follow_what_happens"
_NODES = "tests/observability/metric_groups/test_nodes.py::test_requests_idle_nodes_and_resting_groups_are_counted"
_LENT = "tests/observability/metric_groups/test_lending.py"
_LENDING = f"{_LENT}::test_offered_used_requested_and_declared_cpu_are_separate"
_TIERS = (
    "tests/observability/metric_groups/test_tiers.py::test_trainers_are_counted_by_class_and_limits_against_capacity"
)
_STATUS = f"{_MASTER}::test_the_epoch_and_a_full_disk_are_those_of_the_status"
MOVED_ELSEWHERE = {
    "edl_avoided_nodes": (
        "tests/observability/metric_groups/test_broken_nodes.py::test_nodes_are_counted_by_what_happens_to_them"
    ),
    "edl_cluster_allocatable": f"{_METRICS}::test_a_node_that_is_not_ready_adds_no_capacity",
    "edl_decision_failures_total": _FAILURES,
    "edl_idle_nodes": _NODES,
    "edl_node_requests": _NODES,
    "edl_resting_node_groups": _NODES,
    "edl_job_admitted": _REPLICA,
    "edl_job_samples_per_second": f"{_LOOP}::test_speed_and_epoch_are_those_of_the_status_and_end_with_the_job",
    "edl_leader": _REPLICA,
    "edl_job_lending_price": f"{_LENT}::test_the_price_of_lending_is_that_of_the_status",
    "edl_lent_cpu_cores": _LENDING,
    "edl_lingering_pods": f"{_METRICS}::test_pods_that_do_not_end_are_counted",
    "edl_master_epoch": _STATUS,
    "edl_master_hung_trainers": f"{_MASTER}::test_trainers_that_hang_are_counted",
    "edl_master_journal_blocked": _STATUS,
    "edl_moved_pservers_total": _PLAN,
    "edl_overcommit_ratio": _TIERS,
    "edl_plans_cut_short_total": _PLAN,
    "edl_pods_without_limit": _TIERS,
    "edl_trainers_by_qos": _TIERS,
    "edl_plans_refused_total": _FAILURES,
    "edl_quarantined_objects": _REPLICA,
    "edl_rejected_files": _REPLICA,
    "edl_resize_cost_seconds": f"{_LOOP}::test_the_measured_cost_of_a_resize_is_counted_once",
    "edl_slowed_trainers": _LENDING,
}

# Alerts whose expression holds at some time of the scene.
TRUE_IN_THE_SCENE = {
    "EdlNobodyLeads": "yes: the controller is killed",
    "EdlNoStandby": "yes: there is one controller",
    "EdlServingWaits": "yes: serving takes capacity from training",
    "EdlServingShort": "yes: a serving pod is larger than each node",
    "EdlServingUnplaceable": "yes: no eviction helps that pod",
    "EdlJobsStartSlowly": "yes: pods start",
    "EdlJobsWait": "yes: a job is larger than the cluster",
    "EdlMasterAlone": "yes: the trainers have not called yet",
    "EdlRecordsLeftOut": "yes: a record fails three times",
}
# Those that may hold for a moment, which is why they fire only after minutes.
MAY_BE_TRUE = {
    "EdlDecisionsSlow": "perhaps: on a busy machine",
    "EdlNoRoundSucceeds": "perhaps: before the first two scrapes",
    "EdlPlanFarFromBound": "perhaps: while a job keeps its trainers for its cooldown",
}


def panel_titles() -> set[str]:
    """The panels of all dashboards that have queries."""
    return {panel["title"] for board in dashboards().values() for panel in board["panels"] if panel.get("targets")}


def table() -> str:
    """The table of metrics, then that of panels, then that of alerts, in Markdown."""
    lines = ["| metric | seen to move by | alerts |", "|---|---|---|"]
    series = {metric.name: metric.series for metric in (*CONTROLLER_METRICS, *MASTER_METRICS)}
    lines += [f"| `{name}` | {_moved(name)} | {_alerts(series[name])} |" for name in sorted(series)]
    lines += ["", "| panel | in the scene |", "|---|---|"]
    lines += [f"| {title} | {_seen(title)} |" for title in sorted(panel_titles())]
    lines += ["", "| alert | true in the scene | fires with promtool |", "|---|---|---|"]
    seen = {**TRUE_IN_THE_SCENE, **MAY_BE_TRUE}
    for alert in ALERTS:
        lines.append(f"| `{alert.name}` | {seen.get(alert.name, 'no: nothing of that kind happens')} | yes |")
    return "\n".join(lines) + "\n"


def _moved(name: str) -> str:
    return f"`{MOVED_ELSEWHERE[name]}`" if name in MOVED_ELSEWHERE else "the scene"


def _alerts(series: tuple[str, ...]) -> str:
    """The alerts whose expression names a metric; a recording rule stands for the metric that it is made of."""
    named = {*series, *(rule.name for rule in RECORDING_RULES if set(_NAME.findall(rule.expr)) & set(series))}
    return ", ".join(f"`{alert.name}`" for alert in ALERTS if set(_NAME.findall(alert.expr)) & named)


def _seen(title: str) -> str:
    if title in EMPTY:
        return f"no value: {EMPTY[title]}"
    return f"a value that stays: {STEADY[title]}" if title in STEADY else "changed"


if __name__ == "__main__":
    print(table(), end="")
