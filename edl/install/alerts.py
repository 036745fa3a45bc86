"""The alerts, and the objects of the Prometheus Operator that scrape controllers and masters.

Each alert has a threshold, the reason for the threshold, and what to do. The rule files in deploy/ and the table in
docs/operations.md are made from this list. A test compares the names of metrics and labels with those that the code
exports.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from edl.install.recording_rules import RECORDING_RULES, SERVING_LIMIT_S, SERVING_OBJECTIVE, late_serving

Object = dict[str, Any]


class Severity(StrEnum):
    """Who must react to an alert, and how fast."""

    CRITICAL = "critical"  # somebody, now
    WARNING = "warning"  # somebody, today
    INFO = "info"  # for information


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        expr: PromQL; the alert fires for each series of the result.
        hold: how long the result must last, as Prometheus writes durations; empty fires at once.
        summary: what is wrong; may contain placeholders of Prometheus.
        why: the reason for the threshold.
        remedy: what to do.
    """

    name: str
    expr: str
    hold: str
    severity: Severity
    summary: str
    why: str
    remedy: str


def _burning(factor: float, long: str, short: str) -> str:
    """True while the error budget of serving is used `factor` times as fast as it may be, in both windows."""
    budget = factor * round(1 - SERVING_OBJECTIVE, 6)
    return " and ".join(f"{late_serving(window)} > {budget:g}" for window in (long, short))


_OBJECTIVE = f"{SERVING_OBJECTIVE:.0%} of serving pods should have a node within {SERVING_LIMIT_S:g} s"

ALERTS: tuple[Alert, ...] = (
    Alert(
        "EdlNobodyLeads",
        "absent(edl_leader) or max(edl_leader) == 0",
        "2m",
        Severity.CRITICAL,
        "no controller leads, or Prometheus scrapes none: edl starts, resizes and replaces no pods",
        "a standby replica takes over within 15 s, and a new pod starts in about 30 s",
        "run `kubectl -n paddlecloud get pods,lease`; if the Lease is fresh, only scraping broke; else the log of"
        " the last leader (`kubectl logs --previous`) says why it stopped",
    ),
    Alert(
        "EdlTwoLead",
        "sum(edl_leader) > 1",
        "2m",
        Severity.CRITICAL,
        "{{ $value }} controllers lead at the same time",
        "while the leader changes, two scrapes may disagree for one interval",
        "look for a controller that runs with `--no-leader-election`, or for two clusters in one Prometheus",
    ),
    Alert(
        "EdlNoStandby",
        "count(edl_leader) < 2",
        "15m",
        Severity.WARNING,
        "there is no standby controller: if the leader stops, edl pauses until a new pod runs",
        "a rollout or the drain of a node takes less time",
        "run `kubectl -n paddlecloud describe pods`; remove this alert if you want only one replica",
    ),
    Alert(
        "EdlLeadershipFlaps",
        "sum(changes(edl_leader[1h])) > 6",
        "",
        Severity.WARNING,
        "replicas started or stopped to lead {{ $value }} times in an hour",
        "a rollout changes the leader twice, which counts as four changes; more means that the lease is renewed late",
        "look for a slow API server or a controller without cpu: the leader renews the lease every 2 s, and each"
        " renewal must succeed within 10 s",
    ),
    Alert(
        "EdlNoRoundSucceeds",
        '(sum(increase(edl_rounds_total{result="acted"}[10m])) or vector(0)) == 0',
        "5m",
        Severity.CRITICAL,
        "the controller has published no plan for ten minutes",
        "a plan is published every 5 s (`--interval-s`), in a quiet cluster, too",
        "the log says `round skipped` if the cluster cannot be observed, and `no plan` if no plan can be made",
    ),
    Alert(
        "EdlPlanRefused",
        "increase(edl_plans_refused_total[1h]) > 0",
        "",
        Severity.WARNING,
        "a plan broke a rule and was dropped; edl uses the last plan without its growth",
        "every such plan is a bug in edl",
        "run the controller with `--record DIR` and report the newest record",
    ),
    Alert(
        "EdlNoPlan",
        "sum by (failure) (increase(edl_decision_failures_total[15m])) > 3",
        "",
        Severity.WARNING,
        "edl makes no new decisions ({{ $labels.failure }}); until one succeeds, no job grows or starts",
        "one late decision on a busy machine does no harm, because edl uses the last plan without its growth",
        "for `late_solver` and `late_thread` give the controller more cpu; for any other failure report a record",
    ),
    Alert(
        "EdlDecisionsSlow",
        "histogram_quantile(0.95, sum by (le) (rate(edl_decision_seconds_bucket[10m]))) > 5",
        "10m",
        Severity.WARNING,
        "5 % of the decisions take longer than {{ $value | humanizeDuration }}",
        "a decision fails after 10 s; half of that leaves time to react",
        "give the controller more cpu; a cluster with fewer kinds of nodes and pods needs less",
    ),
    Alert(
        "EdlPlanFarFromBound",
        "max(edl_plan_gap_ratio) > 0.1",
        "30m",
        Severity.INFO,
        "plans may be {{ $value | humanizePercentage }} below the certified bound",
        "most measured plans are at most 0.7 % below the bound, and on small full clusters after a change at most"
        " 5.4 %; a mass arrival may reach 33 % (docs/benchmarks.md)",
        "report a record (`--record DIR`): either the bound is too high or the packing is poor",
    ),
    Alert(
        "EdlServingWaits",
        "max(edl_serving_waiting_pods) - max(edl_serving_short_pods) > 0",
        "3m",
        Severity.CRITICAL,
        "{{ $value }} serving pods wait for capacity that training can give up",
        "a trainer has 10 or 30 s to end unless its template says otherwise; a node starts a pod in seconds",
        "run `kubectl get events -A --field-selector reason=FailedScheduling`; look for trainers that stay"
        " Terminating",
    ),
    Alert(
        "EdlServingShort",
        "max(edl_serving_short_pods) > 0",
        "5m",
        Severity.CRITICAL,
        "{{ $value }} serving pods do not fit, even without any trainer",
        "a cluster that adds nodes automatically needs some minutes for a node",
        "add nodes, or lower the requests of the pods",
    ),
    Alert(
        "EdlServingBudgetBurnsFast",
        _burning(14.4, "1h", "5m"),
        "2m",
        Severity.CRITICAL,
        "{{ $value | humanizePercentage }} of the serving pods of the last hour waited too long for a node",
        f"{_OBJECTIVE}; at 14.4 times the allowed rate an hour uses 2 % of the budget of 30 days",
        "look for trainers that stay Terminating; `--serving-headroom` keeps capacity for the next pods",
    ),
    Alert(
        "EdlServingBudgetBurnsSlowly",
        _burning(6, "6h", "30m"),
        "15m",
        Severity.WARNING,
        "{{ $value | humanizePercentage }} of the serving pods of the last six hours waited too long for a node",
        f"{_OBJECTIVE}; at 6 times the allowed rate six hours use 5 % of the budget of 30 days",
        "set `--serving-headroom`, or shorten `terminationGracePeriodSeconds` of the trainers",
    ),
    Alert(
        "EdlServingUnplaceable",
        "max(edl_serving_unplaceable_pods) > 0",
        "10m",
        Severity.WARNING,
        "{{ $value }} serving pods wait for a node, and the eviction of trainers helps none of them",
        "a rule between pods or a volume keeps them from every node, or they did not use free capacity; edl makes no"
        " capacity for them",
        "`edl plan` and the log lines `postponed` name the rule; so does `kubectl describe pod`",
    ),
    Alert(
        "EdlPodsLinger",
        "max(edl_lingering_pods) > 0",
        "5m",
        Severity.WARNING,
        "{{ $value }} pods terminate and do not end, so edl counts their capacity as taken and takes that of others",
        "a kubelet ends a pod within seconds of its grace period; a node that restarts needs some minutes",
        "run `kubectl get pods -A | grep Terminating`; look for finalizers, for nodes that are not ready and for a"
        " `terminationGracePeriodSeconds` of hours",
    ),
    Alert(
        "EdlWritesRefused",
        'sum by (action, result) (increase(edl_actions_total{result=~"Failed|Refused"}[15m])) > 5',
        "",
        Severity.WARNING,
        "{{ $value | humanize }} writes ({{ $labels.action }}) failed in 15 minutes",
        "the API server rejected the same kind of write more than 5 times; edl repeats it after 5, 10, ... 300 s",
        "condition `Degraded` of the jobs and the log contain the message of the API server",
    ),
    Alert(
        "EdlObjectsLeftOut",
        "max(edl_quarantined_objects) > 0",
        "5m",
        Severity.WARNING,
        "{{ $value }} objects cannot be read, so edl leaves them out of every decision",
        "an object that somebody is repairing is readable again soon",
        "repair the objects; the log names them in lines `object left out`, at most 50 at a time",
    ),
    Alert(
        "EdlFilesRefused",
        "max(edl_rejected_files) > 0",
        "5m",
        Severity.WARNING,
        "a file of --queues, --tenants or --expect-nodes was changed and cannot be used",
        "a file that somebody is editing is whole again soon",
        "correct the file; the log names it in a line `changed files refused`. edl goes on with what it held before",
    ),
    Alert(
        "EdlJobsStartSlowly",
        'max(edl_jobs{phase="Creating"}) > 0',
        "30m",
        Severity.INFO,
        "for 30 minutes at least one job has had fewer ready pods than its minimum",
        "a large image takes up to ten minutes to pull; if jobs arrive all the time, one of them is always starting",
        "run `kubectl get tj -A | grep Creating`, then `kubectl describe` for the job and its pods",
    ),
    Alert(
        "EdlJobsWait",
        'max(edl_jobs{phase="Pending"}) > 0',
        "2h",
        Severity.INFO,
        "{{ $value }} jobs are Pending; there is no capacity for their minimum of trainers",
        "choose your own limit: this one allows two hours of a full cluster",
        "column REASON says why a job waits, and `edl explain JOB` says what would admit it",
    ),
    Alert(
        "EdlJobIsTossedAbout",
        "sum by (namespace, job) (increase(edl_resizes_total[1h])) > 40",
        "",
        Severity.WARNING,
        "job {{ $labels.namespace }}/{{ $labels.job }} was resized {{ $value | humanize }} times in an hour",
        "serving that comes and goes every three minutes causes 40 resizes an hour; for other jobs a job shrinks at"
        " most once a minute (`cooldownSeconds`)",
        "smooth the serving load, set `--serving-headroom`, or raise `spec.elasticity.cooldownSeconds`",
    ),
    Alert(
        "EdlLendingLasts",
        "max(edl_slowed_trainers) > 0",
        "15m",
        Severity.WARNING,
        "for 15 minutes serving has slowed {{ $value }} trainers that lend CPU",
        "edl clears a node after `--clear-lending-after-s`, unless the jobs there are at their minimum or in their"
        " cooldown; serving that changes all the time starts this time again",
        "lower `--clear-lending-after-s` if it is above 900, add nodes, or set `spec.elasticity.lending: Never`",
    ),
    Alert(
        "EdlNodeAvoided",
        'max(edl_avoided_nodes{state=~"avoided|tried|spared"}) > 0',
        "",
        Severity.WARNING,
        "trainers of several jobs fail or hang on the same node, and do well elsewhere",
        "one job cannot cause it alone (`--avoid-nodes-after`), and a node that is sound again clears itself with its"
        " next trainer",
        "`edl explain JOB` and the events of the nodes name the node; look at its kernel log, disk, memory and"
        " devices, then drain and repair it",
    ),
    Alert(
        "EdlMasterDiskFull",
        "edl_master_journal_blocked > 0",
        "1m",
        Severity.CRITICAL,
        "the master of {{ $labels.namespace }}/{{ $labels.job }} cannot write its journal; training is paused",
        "a full disk stays full until somebody frees space",
        "enlarge the volume claim or free space on its node; training resumes automatically",
    ),
    Alert(
        "EdlMasterAlone",
        'edl_master_sessions == 0 and ignoring (place) edl_master_positions{place="todo"} > 0',
        "10m",
        Severity.WARNING,
        "no trainer of {{ $labels.namespace }}/{{ $labels.job }} has called the master for ten minutes, although"
        " data is left",
        "training code that uses the master calls it sooner than that",
        "read the logs of the trainers: `EDL_MASTER` may be wrong, a network policy may block the call, or the code"
        " never calls the master",
    ),
    Alert(
        "EdlRecordsLeftOut",
        'edl_master_positions{place="quarantined"} > 0',
        "",
        Severity.INFO,
        "{{ $value }} records of {{ $labels.namespace }}/{{ $labels.job }} failed three times and are left out",
        "normally no record fails; more than `maxQuarantinedFraction` of them fail the job",
        "run `edl audit` on the journal: it names the records",
    ),
)

_OPERATIONS, _TROUBLESHOOTING = "docs/operations.md", "docs/troubleshooting.md"
RUNBOOKS: dict[str, tuple[str, str]] = {
    "EdlNobodyLeads": (_TROUBLESHOOTING, "Nothing happens at all"),
    "EdlTwoLead": (_OPERATIONS, "High availability"),
    "EdlNoStandby": (_OPERATIONS, "High availability"),
    "EdlLeadershipFlaps": (_OPERATIONS, "High availability"),
    "EdlNoRoundSucceeds": (_TROUBLESHOOTING, "Nothing happens at all"),
    "EdlPlanRefused": (_TROUBLESHOOTING, "Asking for help"),
    "EdlNoPlan": (_TROUBLESHOOTING, "Nothing happens at all"),
    "EdlDecisionsSlow": (_OPERATIONS, "High availability"),
    "EdlPlanFarFromBound": (_TROUBLESHOOTING, "Asking for help"),
    "EdlServingWaits": (_TROUBLESHOOTING, "Serving pods stay Pending"),
    "EdlServingShort": (_TROUBLESHOOTING, "Serving pods stay Pending"),
    "EdlServingBudgetBurnsFast": (_TROUBLESHOOTING, "Serving pods stay Pending"),
    "EdlServingBudgetBurnsSlowly": (_TROUBLESHOOTING, "Serving pods stay Pending"),
    "EdlServingUnplaceable": (_TROUBLESHOOTING, "Serving pods stay Pending"),
    "EdlPodsLinger": (_TROUBLESHOOTING, "Serving pods stay Pending"),
    "EdlWritesRefused": (_TROUBLESHOOTING, "The job is Degraded"),
    "EdlObjectsLeftOut": (_TROUBLESHOOTING, "Nothing happens at all"),
    "EdlFilesRefused": (_TROUBLESHOOTING, "Nothing happens at all"),
    "EdlJobsStartSlowly": (_TROUBLESHOOTING, "The job stays Creating"),
    "EdlJobsWait": (_TROUBLESHOOTING, "The job stays Pending"),
    "EdlJobIsTossedAbout": (_TROUBLESHOOTING, "Trainers disappear"),
    "EdlLendingLasts": (_TROUBLESHOOTING, "Trainers are slow beside serving"),
    "EdlNodeAvoided": (_TROUBLESHOOTING, "A node breaks trainers"),
    "EdlMasterDiskFull": (_TROUBLESHOOTING, "The master"),
    "EdlMasterAlone": (_TROUBLESHOOTING, "The master"),
    "EdlRecordsLeftOut": (_TROUBLESHOOTING, "The master"),
}
"""Alert -> the document and the heading in it that say what to do."""


def runbook(alert: str) -> str:
    """The document of an alert with the anchor of its heading, such as `docs/operations.md#high-availability`."""
    document, heading = RUNBOOKS[alert]
    return f"{document}#{heading.lower().replace(' ', '-')}"


def rule_groups() -> Object:
    """The rules as a rule file of Prometheus; a PrometheusRule has the same content as its `spec`."""
    recorded = [{"record": rule.name, "expr": rule.expr} for rule in RECORDING_RULES]
    groups = (("edl-recorded", recorded), ("edl", [_rule(alert) for alert in ALERTS]))
    return {"groups": [{"name": name, "rules": rules} for name, rules in groups]}


def _rule(alert: Alert) -> Object:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({"for": alert.hold} if alert.hold else {}),
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "runbook": runbook(alert.name),
            "description": f"Reason for the threshold: {alert.why}. What to do: {alert.remedy}.",
        },
    }
