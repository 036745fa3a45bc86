"""A pasted TrainingJob in the snapshot of a live cluster: what would change if it were applied now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edl.errors import ConfigError
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job

MAX_BYTES = 64 * 1024
MAX_JOBS = 20
_NAME = "the pasted text"


@dataclass(frozen=True, slots=True)
class Pasted:
    """The cluster with the pasted jobs, and what was wrong with the text but does not matter to a plan."""

    snapshot: ClusterSnapshot
    warnings: tuple[str, ...]


def with_pasted(snapshot: ClusterSnapshot, text: str) -> Pasted:
    """Add the jobs of a text to a cluster; one that exists gets the pasted spec and keeps its pods and its status.

    Args:
        snapshot: the cluster as it is.
        text: YAML or JSON with at least one TrainingJob; at most `MAX_BYTES` and `MAX_JOBS`.

    Raises:
        ConfigError: the text is too long, cannot be read, or has no TrainingJob or too many.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise ConfigError(f"{_NAME} is longer than {MAX_BYTES // 1024} KiB; paste only the job")
    if not text.strip():
        raise ConfigError(f"{_NAME} is empty; paste a TrainingJob as YAML or JSON")
    saved = read_snapshot_texts([(_NAME, text)])
    found, left_out = saved.snapshot(snapshot.observed_at_s)
    if not found.jobs:
        reasons = "; ".join(map(str, left_out))
        raise ConfigError(
            f"{_NAME} has no TrainingJob that can be read{f' ({reasons})' if reasons else ''}; paste one with"
            " apiVersion, kind: TrainingJob, metadata and spec"
        )
    if len(found.jobs) > MAX_JOBS:
        raise ConfigError(f"{_NAME} has {len(found.jobs)} jobs; paste at most {MAX_JOBS}")
    warnings = [*map(str, left_out), *saved.dropped()]
    if found.nodes or found.pods:
        warnings.append("only the TrainingJobs of the text are used: nodes and pods are those of the cluster")
    existing = {job.key: job for job in snapshot.jobs}
    changed = {job.key: _applied(job, existing.get(job.key)) for job in found.jobs}
    jobs = existing | changed
    return Pasted(replace(snapshot, jobs=tuple(jobs[key] for key in sorted(jobs))), tuple(warnings))


def _applied(pasted: Job, existing: Job | None) -> Job:
    """The job as the cluster would have it after `kubectl apply`."""
    if existing is None:
        return replace(pasted, uid=pasted.uid or f"pasted {pasted.key}", status=None, finished=False, deleting=False)
    return replace(
        pasted,
        uid=existing.uid,
        pods=existing.pods,
        created_s=existing.created_s,
        status=existing.status,
        finished=existing.finished,
        deleting=existing.deleting,
    )
