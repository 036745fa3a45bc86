"""Why a running job lends no CPU although the operator lets trainers lend: one sentence for `edl explain`.

The first cause that holds is named, from the rules that somebody chose to what a running trainer cannot change.
"""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.lending import LEAST_CPU_MILLI, Lending, least
from edl.model.limits import Limits
from edl.model.names import LABEL_LENDING
from edl.model.pods import Pod
from edl.model.resources import CPU


def why_nothing_is_lent(job: Job, snapshot: ClusterSnapshot, limits: Limits) -> str:
    """The cause, as the end of a sentence; empty if the job lends, has no trainer on a node, or lending is off.

    Args:
        job: a job of the snapshot.
        snapshot: the cluster as observed.
        limits: what the operator allows. Lending is on by these, or if any job of the cluster lends.
    """
    trainers = [pod for pod in job.live_trainers if pod.node]
    is_on = limits.lending.surplus_cpu_request < 1.0 or any(_lends(other) for other in snapshot.jobs)
    if not is_on or not trainers or _lends(job):
        return ""
    return _rule_against(job, limits) or _why_these_do_not(job, trainers, snapshot)


def _lends(job: Job) -> bool:
    return any(pod.lent_cpu_milli for pod in job.live_trainers)


def _rule_against(job: Job, limits: Limits) -> str:
    """Name the rule that keeps every trainer of the job from lending CPU."""
    if job.owner_count is not None:
        return "its pods belong to another controller, and only trainers of TrainingJobs lend"
    if job.lending is Lending.NEVER:
        return "spec.elasticity.lending is Never"
    most = limits.tenants.rule_of(job.key.namespace).lending if limits.tenants is not None else None
    if most is not None and least(job.lending, most) is Lending.NEVER:
        return f"the file of --tenants keeps namespace {job.key.namespace} from lending"
    if not job.fault_tolerant and Lending.SURPLUS in {job.lending, most}:
        return "a gang (fault_tolerant: false) waits for its slowest trainer, so it lends only with lending: All"
    return ""


def _why_these_do_not(job: Job, trainers: list[Pod], snapshot: ClusterSnapshot) -> str:
    """Say why the trainers that run lend no CPU."""
    may = [pod for pod in trainers if pod.index is not None and job.may_lend(pod.index)]
    if not may:
        return "it runs with its minimum, and only trainers above the minimum lend"
    closed = {node.name for node in snapshot.nodes if (LABEL_LENDING, Lending.NEVER.value) in node.labels}
    may = [pod for pod in may if pod.node not in closed]
    if not may:
        return f"its nodes have the label {LABEL_LENDING}=Never"
    if all(pod.shape.request[CPU] <= LEAST_CPU_MILLI for pod in may):
        return "its trainers request hardly any CPU"
    changeable = [pod.running_request for pod in may if pod.running_request is not None]
    if not changeable:
        return (
            "its trainers started before, and edl cannot lower their requests in place: they are Guaranteed (requests"
            " equal limits), or their kubelet or their template does not allow it; new trainers lend"
        )
    refusal = next((one.refusal for one in changeable if one.refusal), "")
    if refusal:
        return f"the kubelet does not carry out the lower request ({refusal}); edl tries again after five minutes"
    return (
        "its trainers started before; flag --lend-by-resize of the controller lowers their requests, or new ones lend"
    )
