"""The kinds that own pods, and disruption budgets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from edl.sandbox.apiserver.kinds import defaults
from edl.sandbox.apiserver.kinds.kind import Kind, Object, Scale, dig
from edl.sandbox.apiserver.kinds.rows import workloads as workloads_rows

_app, _batch, _policy = partial(Kind, "apps", "v1"), partial(Kind, "batch", "v1"), partial(Kind, "policy", "v1")
_APPS = "io.k8s.api.apps.v1."
_REPLICAS = Scale(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


def _replica_fields(value: Object) -> Mapping[str, str]:
    return {"status.replicas": str(dig(value, "status", "replicas", default=0))}


def _job_fields(value: Object) -> Mapping[str, str]:
    return {"status.successful": str(dig(value, "status", "succeeded", default=0))}


KINDS = (
    _app(
        "DaemonSet",
        "daemonsets",
        namespaced=True,
        type_name=f"{_APPS}DaemonSet",
        short_names=("ds",),
        categories=("all",),
        columns=workloads_rows.DAEMON_SET_COLUMNS,
        row=workloads_rows.daemon_set_row,
        has_status=True,
        has_generation=True,
        prepare=defaults.daemon_set,
        rules=defaults.template_rules,
    ),
    _app(
        "Deployment",
        "deployments",
        namespaced=True,
        type_name=f"{_APPS}Deployment",
        short_names=("deploy",),
        categories=("all",),
        columns=workloads_rows.DEPLOYMENT_COLUMNS,
        row=workloads_rows.deployment_row,
        has_status=True,
        has_generation=True,
        scale=_REPLICAS,
        prepare=defaults.deployment,
        rules=defaults.template_rules,
    ),
    _app(
        "ReplicaSet",
        "replicasets",
        namespaced=True,
        type_name=f"{_APPS}ReplicaSet",
        short_names=("rs",),
        categories=("all",),
        columns=workloads_rows.REPLICA_SET_COLUMNS,
        row=workloads_rows.replica_set_row,
        has_status=True,
        has_generation=True,
        scale=_REPLICAS,
        selectable=("status.replicas",),
        fields_of=_replica_fields,
        prepare=defaults.replica_set,
        rules=defaults.template_rules,
    ),
    _batch(
        "Job",
        "jobs",
        namespaced=True,
        type_name="io.k8s.api.batch.v1.Job",
        categories=("all",),
        columns=workloads_rows.JOB_COLUMNS,
        row=workloads_rows.job_row,
        has_status=True,
        has_generation=True,
        selectable=("status.successful",),
        fields_of=_job_fields,
        prepare=defaults.job,
        rules=defaults.template_rules,
    ),
    _policy(
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        namespaced=True,
        type_name="io.k8s.api.policy.v1.PodDisruptionBudget",
        short_names=("pdb",),
        columns=workloads_rows.BUDGET_COLUMNS,
        row=workloads_rows.budget_row,
        has_status=True,
        has_generation=True,
        prepare=defaults.budget,
        rules=defaults.selector_text_rules,
    ),
)
