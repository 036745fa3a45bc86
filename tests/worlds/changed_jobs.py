"""Which jobs differ between two snapshots, by the identity of their objects."""

from __future__ import annotations

from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey


def changed_jobs(before: ClusterSnapshot, after: ClusterSnapshot) -> frozenset[JobKey]:
    """Return the keys of the jobs that came, changed or went between two snapshots of one cluster.

    A job that has not changed is the same Python object in both, so none is compared by its content.
    """
    if before.jobs is after.jobs:
        return frozenset()
    old, new = ({id(job) for job in one.jobs} for one in (before, after))
    return frozenset(
        job.key for one, other in ((before, new), (after, old)) for job in one.jobs if id(job) not in other
    )
