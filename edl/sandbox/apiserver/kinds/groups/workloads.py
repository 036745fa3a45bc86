"""The kinds that own pods, and disruption budgets."""

from __future__ import annotations

from collections.abc import Mapping

from edl.sandbox.apiserver.kinds import defaults
from edl.sandbox.apiserver.kinds.groups.group import Group
from edl.sandbox.apiserver.kinds.kind import Object, Scale, dig
from edl.sandbox.apiserver.kinds.rows import workloads as rows

_APPS = Group("apps", "io.k8s.api.apps.v1")
_BATCH = Group("batch", "io.k8s.api.batch.v1")
_POLICY = Group("policy", "io.k8s.api.policy.v1")
_REPLICAS = Scale(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


def _replica_fields(value: Object) -> Mapping[str, str]:
    return {"status.replicas": str(dig(value, "status", "replicas", default=0))}


def _job_fields(value: Object) -> Mapping[str, str]:
    return {"status.successful": str(dig(value, "status", "succeeded", default=0))}


KINDS = (
    _APPS.kind(
        "DaemonSet",
        rows.DAEMON_SET_COLUMNS,
        rows.daemon_set_row,
        short="ds",
        categories=("all",),
        has_status=True,
        has_generation=True,
        prepare=defaults.daemon_set,
        rules=defaults.template_rules,
    ),
    _APPS.kind(
        "Deployment",
        rows.DEPLOYMENT_COLUMNS,
        rows.deployment_row,
        short="deploy",
        categories=("all",),
        has_status=True,
        has_generation=True,
        scale=_REPLICAS,
        prepare=defaults.deployment,
        rules=defaults.template_rules,
    ),
    _APPS.kind(
        "ReplicaSet",
        rows.REPLICA_SET_COLUMNS,
        rows.replica_set_row,
        short="rs",
        categories=("all",),
        has_status=True,
        has_generation=True,
        scale=_REPLICAS,
        selectable=("status.replicas",),
        fields_of=_replica_fields,
        prepare=defaults.replica_set,
        rules=defaults.template_rules,
    ),
    _BATCH.kind(
        "Job",
        rows.JOB_COLUMNS,
        rows.job_row,
        categories=("all",),
        has_status=True,
        has_generation=True,
        selectable=("status.successful",),
        fields_of=_job_fields,
        prepare=defaults.job,
        rules=defaults.template_rules,
    ),
    _POLICY.kind(
        "PodDisruptionBudget",
        rows.BUDGET_COLUMNS,
        rows.budget_row,
        short="pdb",
        has_status=True,
        has_generation=True,
        prepare=defaults.budget,
        rules=defaults.selector_text_rules,
    ),
)
