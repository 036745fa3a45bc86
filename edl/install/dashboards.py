"""The Grafana dashboards: what the planner decided for the cluster and why, and the life of one job.

A panel is a title, a unit and some queries; where it stands follows from its place in the list. A test compares every
query with the metrics that the code exports. The dashboards ask for a data source when they are imported, so they fit
any Grafana that has a Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_WIDTH = 24
_HEIGHT = 8
_SCHEMA_VERSION = 39
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_OF_JOB = 'namespace="$namespace", job="$job"'
_OF_JOBS = 'namespace=~"$namespace"'

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        queries: (PromQL, legend as Grafana writes it).
        unit: as Grafana names it.
        about: what is to be read from it.
        kind: of Grafana's panels.
        columns: width, of 24.
        stacked: whether the areas add up.
    """

    title: str
    queries: tuple[tuple[str, str], ...]
    about: str = ""
    unit: str = "short"
    kind: str = "timeseries"
    columns: int = 12
    stacked: bool = False


def dashboards() -> dict[str, Object]:
    """File name -> dashboard."""
    return {
        "scaling-decisions.json": _dashboard(
            "edl-scaling-decisions", "edl: scaling decisions", _SCALING, (_namespace(every=True),)
        ),
        "job.json": _dashboard("edl-job", "edl: one job", _JOB, (_namespace(every=False), _job())),
    }


_SCALING = (
    Panel(
        "Leader",
        (("max(edl_leader)", "leads"),),
        "1 while some replica leads; 0: nothing is decided.",
        kind="stat",
        columns=4,
    ),
    Panel(
        "Standing by",
        (("count(edl_leader) - sum(edl_leader)", "replicas"),),
        "Replicas that could take over.",
        kind="stat",
        columns=4,
    ),
    Panel(
        "Serving that waits",
        (("max(edl_serving_waiting_pods)", "waiting"), ("max(edl_serving_short_pods)", "short")),
        "Short: beyond what any plan could place, even without training.",
        kind="stat",
        columns=8,
    ),
    Panel(
        "Jobs",
        (("max by (phase) (edl_jobs)", "{{phase}}"),),
        kind="stat",
        columns=8,
    ),
    Panel(
        "How full the cluster is",
        (
            (
                "max by (resource) (edl_cluster_requested) / max by (resource) (edl_cluster_allocatable)",
                "{{resource}}",
            ),
        ),
        "Requests of pods on nodes, by what ready nodes offer.",
        "percentunit",
    ),
    Panel(
        "Trainers by job",
        ((f'max by (namespace, job) (edl_job_trainers{{state="current", {_OF_JOBS}}})', "{{namespace}}/{{job}}"),),
        "Live trainers; the areas are the jobs.",
        stacked=True,
    ),
    Panel(
        "Resizes by reason, per minute",
        (
            (
                f"60 * sum by (direction, reason) (rate(edl_resizes_total{{{_OF_JOBS}}}[5m]))",
                "{{direction}} {{reason}}",
            ),
        ),
        "What the reasons mean: docs/operations.md.",
    ),
    Panel(
        "Trainers ended by decisions, by reason, and pservers moved, per minute",
        (
            ("60 * sum by (reason) (rate(edl_victims_total[5m]))", "{{reason}}"),
            ("60 * sum(rate(edl_moved_pservers_total[5m]))", "pservers moved"),
        ),
        "ServingNeedsRoom is the planner's share; kube-scheduler's own preemption is not in it.",
    ),
    Panel(
        "Serving",
        (
            ("max(edl_serving_waiting_pods)", "waiting"),
            ("max(edl_serving_short_pods)", "short"),
            ("max(edl_serving_unplaceable_pods)", "leave room unused"),
        ),
        "Pods. A wave shows as a peak of waiting that is gone once trainers have left.",
    ),
    Panel(
        "Jobs that are not admitted",
        (
            (
                f"count by (namespace) (max by (namespace, job) (edl_job_admitted{{{_OF_JOBS}}}) == 0)",
                "{{namespace}}",
            ),
        ),
        "Waiting, suspended and finished ones.",
    ),
    Panel(
        "Time of a decision",
        tuple(
            (f"histogram_quantile({q}, sum by (le) (rate(edl_decision_seconds_bucket[5m])))", f"{q:g}")
            for q in (0.5, 0.95, 0.99)
        ),
        "A decision that takes 10 s is given up, and the last plan stands without its growth.",
        "s",
    ),
    Panel(
        "Time of a round",
        tuple(
            (f"histogram_quantile({q}, sum by (le) (rate(edl_round_seconds_bucket[5m])))", f"{q:g}")
            for q in (0.5, 0.95)
        ),
        "Observe, decide, check, write.",
        "s",
    ),
    Panel(
        "How far plans may be from the optimum",
        (("max(edl_plan_gap_ratio)", "gap"),),
        "Part of the certified bound.",
        "percentunit",
    ),
    Panel(
        "Rounds per minute",
        (("60 * sum by (result) (rate(edl_rounds_total[5m]))", "{{result}}"),),
        "acted is good; followed is a standby; failed: some write was refused; skipped: no contact.",
    ),
    Panel(
        "Decisions that failed, per minute",
        (
            ("60 * sum by (failure) (rate(edl_decision_failures_total[5m]))", "{{failure}}"),
            ("60 * sum(rate(edl_plans_refused_total[5m]))", "refused by the check"),
        ),
        "Nothing shrinks on a guess: meanwhile the last plan stands without its growth.",
    ),
    Panel(
        "Writes per minute",
        (("60 * sum by (action, result) (rate(edl_actions_total[5m]))", "{{action}} {{result}}"),),
        "A quiet cluster has none.",
    ),
    Panel(
        "Objects that cannot be read",
        (("max(edl_quarantined_objects)", "objects"),),
        "Left out of every decision; the log names them.",
    ),
    Panel(
        "Versions",
        (("count by (version) (edl_build_info)", "{{version}}"),),
        "Controllers and masters.",
    ),
)

_JOB = (
    Panel(
        "Trainers",
        tuple(
            (f'max(edl_job_trainers{{state="{state}", {_OF_JOB}}})', name)
            for state, name in (
                ("current", "live"),
                ("target", "wanted"),
                ("min", "min-instance"),
                ("max", "max-instance"),
            )
        ),
        "Live follows wanted; a lasting difference is a pod that cannot start.",
        columns=18,
    ),
    Panel("Admitted", ((f"max(edl_job_admitted{{{_OF_JOB}}})", "admitted"),), kind="stat", columns=6),
    Panel(
        "Resizes in the last hour, by reason",
        (
            (
                f"sum by (direction, reason) (increase(edl_resizes_total{{{_OF_JOB}}}[1h]))",
                "{{direction}} {{reason}}",
            ),
        ),
        "`edl explain` says which job or serving pod is behind it.",
    ),
    Panel(
        "Trainers heard by the master",
        ((f"max(edl_master_sessions{{{_OF_JOB}}})", "sessions"),),
        "Within one lease's time.",
    ),
    Panel(
        "The open epoch",
        ((f"max by (place) (edl_master_positions{{{_OF_JOB}}})", "{{place}}"),),
        "Positions: to do, leased, reported, committed, left out.",
        stacked=True,
    ),
    Panel("Epoch", ((f"max(edl_master_epoch{{{_OF_JOB}}})", "epoch"),), "From 0.", columns=4, kind="stat"),
    Panel(
        "Journal blocked",
        ((f"max(edl_master_journal_blocked{{{_OF_JOB}}})", "blocked"),),
        "1: the disk is full, and trainers stand still.",
        columns=4,
        kind="stat",
    ),
    Panel(
        "Records of the journal",
        ((f"max(edl_master_journal_records{{{_OF_JOB}}})", "records"),),
        columns=4,
        kind="stat",
    ),
    Panel(
        "Reports per second",
        (
            (f"sum by (result) (rate(edl_master_reports_total{{{_OF_JOB}}}[5m]))", "{{result}}"),
            (f"sum(rate(edl_master_leases_total{{{_OF_JOB}}}[5m]))", "replies with leases"),
        ),
        "stale: of a trainer that was thought lost.",
    ),
    Panel(
        "Calls per second",
        ((f"sum by (route, code) (rate(edl_master_calls_total{{{_OF_JOB}}}[5m]))", "{{route}} {{code}}"),),
    ),
    Panel(
        "Time of a call, 0.95",
        (
            (
                "histogram_quantile(0.95, sum by (le, route) "
                f"(rate(edl_master_call_seconds_bucket{{{_OF_JOB}}}[5m])))",
                "{{route}}",
            ),
        ),
        "A sync that waits for work is answered late on purpose.",
        "s",
    ),
)


def _dashboard(uid: str, title: str, panels: tuple[Panel, ...], variables: tuple[Object, ...]) -> Object:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["edl"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, *variables]},
        "panels": _laid_out(panels),
    }


def _namespace(*, every: bool) -> Object:
    variable = _variable("namespace", "Namespace", "label_values(edl_job_trainers, namespace)")
    everything = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {**variable, **everything} if every else variable


def _job() -> Object:
    return _variable("job", "Job", 'label_values(edl_job_trainers{namespace="$namespace"}, job)')


def _variable(name: str, label: str, query: str) -> Object:
    # refresh 2: asked again whenever the time range changes, for jobs come and go.
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "sort": 1,
    }


def _laid_out(panels: tuple[Panel, ...]) -> list[Object]:
    """Panels from left to right, a new row where the next one does not fit any more."""
    placed, x, y = [], 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.columns > _WIDTH:
            x, y = 0, y + _HEIGHT
        place = {"x": x, "y": y, "w": panel.columns, "h": _HEIGHT}
        placed.append({"id": number, "gridPos": place, **_drawn(panel)})
        x += panel.columns
    return placed


def _drawn(panel: Panel) -> Object:
    defaults: Object = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"fillOpacity": 40 if panel.stacked else 0, "stacking": stacking}
    return {
        "title": panel.title,
        "type": panel.kind,
        "datasource": _SOURCE,
        **({"description": panel.about} if panel.about else {}),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for i, (expression, legend) in enumerate(panel.queries)
        ],
    }
