"""What to be woken by, and how Prometheus finds it: alerts, and the objects of Prometheus Operator.

Each alert says its threshold, why just that one, and what to do; the rule files and the table in docs/operations.md
are made from it. The names of metrics and labels are compared with what the code exports by a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from edl.install.objects import COMPONENT_LABELS, CONTROLLER, NAMESPACE
from edl.model.names import LABEL_JOB, LABEL_ROLE, Role

Object = dict[str, Any]


class Severity(StrEnum):
    """Who is to look."""

    CRITICAL = "critical"  # somebody, now
    WARNING = "warning"  # somebody, today
    INFO = "info"  # whoever asks why


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        expr: PromQL; fires for each series that it returns.
        hold: how long it must be so, as Prometheus writes times; empty fires at once.
        summary: what is the matter, with Prometheus's own placeholders.
        why: why this threshold.
        remedy: what to do.
    """

    name: str
    expr: str
    hold: str
    severity: Severity
    summary: str
    why: str
    remedy: str


ALERTS: tuple[Alert, ...] = (
    Alert(
        "EdlNobodyLeads",
        "absent(edl_leader) or max(edl_leader) == 0",
        "2m",
        Severity.CRITICAL,
        "no controller leads, or none is scraped: nothing is started, resized or replaced",
        "a standby takes over within 15 s, and a new pod needs some 30 s: two minutes are no hand-over",
        "`kubectl -n paddlecloud get pods,lease`; the log of the last leader says why it stopped",
    ),
    Alert(
        "EdlTwoLead",
        "sum(edl_leader) > 1",
        "2m",
        Severity.CRITICAL,
        "{{ $value }} controllers say that they lead",
        "during a hand-over two scrapes may disagree for one interval; for longer never",
        "look for a controller with `--no-leader-election`, or for two clusters in one Prometheus",
    ),
    Alert(
        "EdlNoStandby",
        "count(edl_leader) < 2",
        "15m",
        Severity.WARNING,
        "only one controller is there: its end is an interruption of as long as a pod needs to start",
        "longer than a rollout or the drain of a node",
        "`kubectl -n paddlecloud describe pods`; or drop this alert where one replica is wanted",
    ),
    Alert(
        "EdlLeadershipFlaps",
        "sum(changes(edl_leader[1h])) > 6",
        "",
        Severity.WARNING,
        "the lead has changed hands {{ $value }} times (taken and given) in an hour",
        "a rollout is two hand-overs, four changes; more means that renewals come too late",
        "look for a slow API server or a controller without cpu: it renews every 2 s and must succeed within 10 s",
    ),
    Alert(
        "EdlNoRoundSucceeds",
        '(sum(increase(edl_rounds_total{result="acted"}[10m])) or vector(0)) == 0',
        "5m",
        Severity.CRITICAL,
        "no round of the controller has gone through for ten minutes",
        "a quiet cluster has one every 5 s; after refusals they come every 30 s at the latest",
        "the log says `skipped` (no contact with the API server) or names the write that is refused each time",
    ),
    Alert(
        "EdlPlanRefused",
        "increase(edl_plans_refused_total[1h]) > 0",
        "",
        Severity.WARNING,
        "a plan broke a rule of ours and was dropped: the cluster stays as it is until the next one",
        "it is a bug of edl, so once is once too often",
        "run with `--record DIR` and report the newest record",
    ),
    Alert(
        "EdlNoPlan",
        "sum by (failure) (increase(edl_decision_failures_total[15m])) > 3",
        "",
        Severity.WARNING,
        "decisions fail ({{ $labels.failure }}): nothing grows meanwhile",
        "one late decision on a busy machine costs nothing; the last plan stands without its growth",
        "`late_solver` and `late_thread`: more cpu for the controller; anything else: report the record",
    ),
    Alert(
        "EdlDecisionsSlow",
        "histogram_quantile(0.95, sum by (le) (rate(edl_decision_seconds_bucket[10m]))) > 5",
        "10m",
        Severity.WARNING,
        "one decision in twenty takes more than {{ $value | humanizeDuration }}",
        "a decision that takes 10 s is given up; half of that leaves time to react",
        "more cpu for the controller; fewer distinct kinds of nodes and of pods make a decision cheaper",
    ),
    Alert(
        "EdlPlanFarFromBound",
        "max(edl_plan_gap_ratio) > 0.1",
        "30m",
        Severity.INFO,
        "plans may miss {{ $value | humanizePercentage }} of what is provably possible",
        "measured plans miss 0.7 % at most, on small full clusters after a change 5.4 % (docs/benchmarks.md)",
        "report a record of it (`--record DIR`): the bound may be loose, or the packing poor",
    ),
    Alert(
        "EdlServingWaits",
        "max(edl_serving_waiting_pods - edl_serving_short_pods) > 0",
        "3m",
        Severity.CRITICAL,
        "{{ $value }} serving pods wait for room that training could give",
        "trainers have 30 s to go unless their template says otherwise, and nodes need some seconds to start a pod",
        "`kubectl get events -A --field-selector reason=FailedScheduling`; look for trainers that stay Terminating",
    ),
    Alert(
        "EdlServingShort",
        "max(edl_serving_short_pods) > 0",
        "5m",
        Severity.CRITICAL,
        "{{ $value }} serving pods would find no room even if no trainer ran",
        "a cluster that scales its nodes needs some minutes for one",
        "add nodes, or lower what the pods ask for: training cannot help any more",
    ),
    Alert(
        "EdlServingUnplaceable",
        "max(edl_serving_unplaceable_pods) > 0",
        "10m",
        Severity.WARNING,
        "{{ $value }} serving pods leave room unused that training made for them",
        "room is offered for 30 s, and withheld for 30, 60, ... 480 s; ten minutes are several offers",
        "anti-affinity, spread constraints or volumes keep them away: `kubectl describe pod` says which",
    ),
    Alert(
        "EdlWritesRefused",
        'sum by (action, result) (increase(edl_actions_total{result=~"Failed|Refused"}[15m])) > 5',
        "",
        Severity.WARNING,
        "the API server refuses {{ $labels.action }}, {{ $value | humanize }} times in 15 minutes",
        "what is refused is asked again after 5, 10, 20, ... 300 s: more than 5 mean two and a half minutes of it",
        "condition `Degraded` of the jobs, and the log, hold the API server's own words",
    ),
    Alert(
        "EdlObjectsLeftOut",
        "max(edl_quarantined_objects) > 0",
        "5m",
        Severity.WARNING,
        "{{ $value }} objects cannot be read and are left out of every decision",
        "an object that is being repaired passes quickly",
        "the log names each one in a line `object left out`",
    ),
    Alert(
        "EdlJobsStartSlowly",
        'max(edl_jobs{phase="Creating"}) > 0',
        "30m",
        Severity.INFO,
        "for 30 minutes some job has been without its minimum of ready pods",
        "pulling a large image may take ten minutes; where jobs arrive all the time others take turns in this phase",
        "`kubectl get tj -A | grep Creating`, then `kubectl describe tj` and its pods",
    ),
    Alert(
        "EdlJobsWait",
        'max(edl_jobs{phase="Pending"}) > 0',
        "2h",
        Severity.INFO,
        "{{ $value }} jobs wait for admission",
        "what is short for you is a matter of taste: two hours of a full cluster",
        "`edl explain JOB` says what would have to happen; column REASON says why",
    ),
    Alert(
        "EdlJobIsTossedAbout",
        "sum by (namespace, job) (increase(edl_resizes_total[1h])) > 40",
        "",
        Severity.WARNING,
        "job {{ $labels.namespace }}/{{ $labels.job }} was resized {{ $value | humanize }} times in an hour",
        "serving that comes and goes every three minutes costs a job as many; for the share of others it is shrunk at"
        " most once a minute (`cooldownSeconds`)",
        "smooth the load, keep `--serving-headroom`, or raise `spec.elasticity.cooldownSeconds`",
    ),
    Alert(
        "EdlMasterDiskFull",
        "edl_master_journal_blocked > 0",
        "1m",
        Severity.CRITICAL,
        "the master of {{ $labels.namespace }}/{{ $labels.job }} cannot write its journal: its trainers stand still",
        "a full disk does not empty itself",
        "enlarge the volume claim, or free its node's disk; the master goes on by itself",
    ),
    Alert(
        "EdlMasterAlone",
        'edl_master_sessions == 0 and ignoring (place) edl_master_positions{place="todo"} > 0',
        "10m",
        Severity.WARNING,
        "no trainer of {{ $labels.namespace }}/{{ $labels.job }} has called its master for ten minutes; work is left",
        "longer than any start of training code that calls the master at all",
        "look at the trainers' logs: wrong `EDL_MASTER`, a network policy between them, or code that never calls it",
    ),
    Alert(
        "EdlRecordsLeftOut",
        'edl_master_positions{place="quarantined"} > 0',
        "",
        Severity.INFO,
        "{{ $value }} records of {{ $labels.namespace }}/{{ $labels.job }} failed three times and are left out",
        "none is expected; more than `maxQuarantinedFraction` fails the job",
        "`edl audit` on the journal names them",
    ),
)


def rule_groups() -> Object:
    """The alerts as a rule file of Prometheus, which is the `spec` of a PrometheusRule too."""
    return {"groups": [{"name": "edl", "rules": [_rule(alert) for alert in ALERTS]}]}


def _rule(alert: Alert) -> Object:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({"for": alert.hold} if alert.hold else {}),
        "labels": {"severity": alert.severity.value},
        "annotations": {"summary": alert.summary, "description": f"Why: {alert.why}. Do: {alert.remedy}."},
    }


def operator_objects() -> dict[str, Object]:
    """File name -> object of Prometheus Operator: what to scrape, and the alerts.

    The controller's series carry the namespace and the name of the job that they are about, so those labels go before
    the ones that Prometheus would add.
    """
    return {
        "servicemonitor.yaml": _monitored(
            "ServiceMonitor",
            CONTROLLER,
            {
                "selector": {"matchLabels": COMPONENT_LABELS},
                "endpoints": [{"port": "http", "interval": "15s", "honorLabels": True}],
            },
        ),
        "podmonitor.yaml": _monitored(
            "PodMonitor",
            "edl-masters",
            {
                "selector": {"matchLabels": {LABEL_ROLE: Role.MASTER.value}},
                "namespaceSelector": {"any": True},
                "podMetricsEndpoints": [
                    {
                        "port": "master-port",
                        "interval": "15s",
                        "relabelings": [{"sourceLabels": [_pod_label(LABEL_JOB)], "targetLabel": "job"}],
                    }
                ],
            },
        ),
        "prometheusrule.yaml": _monitored("PrometheusRule", "edl", rule_groups()),
    }


def _monitored(kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": COMPONENT_LABELS},
        "spec": spec,
    }


def _pod_label(label: str) -> str:
    """What a pod's label is called while Prometheus relabels."""
    return "__meta_kubernetes_pod_label_" + "".join(c if c.isalnum() else "_" for c in label)
