"""Jobs with running pservers, for the tests of moving pservers."""

from __future__ import annotations

from dataclasses import replace

from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits, SharingLimits
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from tests.worlds.builders import make_shape

REST = Limits(sharing=SharingLimits(consolidate_after_s=600))


def with_pservers(job: Job, cores: float, on: tuple[str, ...], *, safe: bool | None = True) -> Job:
    """The job with running pservers on these nodes. By default all of them may be evicted at once."""
    shape = make_shape(cores)
    pods = tuple(
        Pod(
            namespace=job.key.namespace,
            name=f"{job.key.name}-pserver-{i}",
            uid=f"{job.key}-p{i}",
            shape=shape,
            phase=PodPhase.RUNNING,
            node=node,
            ready=True,
            job=job.key,
            role=Role.PSERVER,
            index=i,
            started_s=900.0,
            safe_to_evict=safe,
        )
        for i, node in enumerate(on)
    )
    return replace(job, fixed=(FixedPods(Role.PSERVER, shape, len(on)),), pods=(*pods, *job.pods))
