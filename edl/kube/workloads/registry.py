"""The adapters of all kinds that edl resizes besides TrainingJobs; a further kind is one more line here."""

from __future__ import annotations

from edl.kube.workloads.adapter import Adapter, SuspendingAdapter
from edl.kube.workloads.batch_jobs import BatchJobs
from edl.kube.workloads.leader_worker_sets import LeaderWorkerSets
from edl.kube.workloads.pytorch_jobs import PyTorchJobs
from edl.kube.workloads.ray_clusters import RayClusters
from edl.kube.workloads.ray_jobs import RayJobs
from edl.kube.workloads.unresizable import UNRESIZABLE
from edl.kube.workloads.volcano_jobs import VolcanoJobs
from edl.model.names import WorkloadKind

_SUSPENDING: tuple[SuspendingAdapter, ...] = (BatchJobs(), PyTorchJobs())
_ALL: tuple[Adapter, ...] = (
    *_SUSPENDING,
    VolcanoJobs(),
    RayClusters(),
    RayJobs(),
    LeaderWorkerSets(),
    *UNRESIZABLE,
)

ADAPTERS: dict[WorkloadKind, Adapter] = {adapter.kind: adapter for adapter in _ALL}
SUSPENDING: dict[WorkloadKind, SuspendingAdapter] = {adapter.kind: adapter for adapter in _SUSPENDING}
"""The adapters of the kinds for which edl makes the Workloads of Kueue."""
