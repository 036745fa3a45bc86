"""The file of `--queues`: how much the jobs of each queue may request together.

It maps queues to resources to quantities, in YAML or JSON. Every value is read as text, so that `0.1` is exactly one
tenth. A key that appears twice is an error. Beside the resources, `bestEffort: Allowed` lets jobs of the queue have
trainers that request neither cpu nor memory.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import yaml

from edl.api.resources import is_device
from edl.errors import ConfigError
from edl.kube.translate.shapes import OLD_GPU
from edl.kube.yaml_files import DuplicateKeyError, bytes_of, errors_with_position, read_text, reject_duplicate_keys
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Quota
from edl.model.quantity import exact_quantity, parse_quantity
from edl.model.resources import CPU, EPHEMERAL_STORAGE, GPU, MEMORY, PODS
from edl.model.status import Reason
from edl.model.tenants import Tenants, UnknownQueues

DEFAULT_QUEUE = "default"
"""The queue of a job that names none."""

_QUEUE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_MAX_NAME = 63
_DEVICE = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?/[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?")
_BEST_EFFORT = "bestEffort"
_ALLOWED = {"Allowed": True, "Refused": False}
_PLAIN = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_EXAMPLE = "write QUEUE: {RESOURCE: QUANTITY}, such as blue: {cpu: 64, memory: 256Gi, nvidia.com/gpu: 8}"


def read_queues(path: Path) -> tuple[Quota, ...]:
    """Read the quotas.

    Returns:
        One quota for each queue of the file, sorted by queue.

    Raises:
        ConfigError: the file cannot be read or is not valid; the message names the line.
    """
    name = f"--queues {path}"
    quotas = []
    for queue, at, value in _entries(_compose(read_text(name, bytes_of(path)), name), name, "queues"):
        if not _QUEUE.fullmatch(queue) or len(queue) > _MAX_NAME:
            raise ConfigError(
                f"{at}: {queue[:80]!r} is not a valid queue name; use at most {_MAX_NAME} lowercase letters,"
                " digits, hyphens and dots"
            )
        quotas.append(_quota(value, name, queue))
    return tuple(sorted(quotas, key=lambda quota: quota.queue))


def unmatched(
    quotas: Collection[Quota], jobs: Iterable[Job], path: str, objects: Collection[str] = ()
) -> Iterator[str]:
    """Yield a warning for each queue that has jobs but no quota, or a quota but no jobs, or that an object replaces.

    A file may leave out the default queue on purpose, so its jobs are mentioned only if a queue of the file has no
    job.

    Args:
        quotas: the quotas of the file.
        jobs: the jobs of the cluster; the queue of an invalid job is unknown.
        path: the path of the file; empty if there is none.
        objects: the names of the Queue objects of the cluster.
    """
    if not path:
        return
    limited = {quota.queue for quota in quotas} - {*objects}
    used: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if not job.problem:
            used[job.queue].append(job)
    for queue in sorted({quota.queue for quota in quotas} & {*objects}):
        yield f"queue {queue} of --queues {path} is also a Queue object, which counts instead of the file"
    for queue in sorted(used.keys() - limited - {DEFAULT_QUEUE, *objects} if not objects else ()):
        first, *others = used[queue]
        more = f" and {len(others)} more" if others else ""
        yield f"queue {queue} (job {first.key}{more}) is not in --queues {path}, so it has no quota"
    unlimited = DEFAULT_QUEUE in used and DEFAULT_QUEUE not in {*limited, *objects}
    hint = f"; jobs that name no queue are in queue {DEFAULT_QUEUE}, which has no quota" if unlimited else ""
    for queue in sorted(limited - used.keys()):
        yield f"queue {queue} of --queues {path} has no job, so its quota limits nothing{hint}"


def unlimited(
    jobs: Iterable[Job], quotas: Collection[Quota], objects: Collection[str], tenants: Tenants | None
) -> Iterator[str]:
    """Yield a warning for each queue that has jobs but no Queue object, if the cluster has Queue objects.

    Jobs of the default queue are left out: an operator may limit only some teams.

    Args:
        jobs: the jobs of the cluster; the queue of an invalid job is unknown.
        quotas: the quotas of the file of `--queues`.
        objects: the names of the Queue objects.
        tenants: what becomes of a job in an unknown queue; None if it has no limit.
    """
    if not objects or (tenants is not None and tenants.unknown_queues is not UnknownQueues.ALLOW):
        return
    known = {DEFAULT_QUEUE, *objects, *(quota.queue for quota in quotas)}
    lost: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if not job.problem and job.kueue is None and job.queue not in known:
            lost[job.queue].append(job)
    for queue, (first, *others) in sorted(lost.items()):
        more = f" and {len(others)} more" if others else ""
        yield (
            f"queue {queue} (job {first.key}{more}) has no Queue object, so it has no quota; create Queue {queue},"
            " correct spec.queue, or write unknown-queues: refuse in the file of --tenants"
        )


def unsaved(snapshot: ClusterSnapshot, quotas: Collection[Quota]) -> Iterator[str]:
    """Yield a warning if files lack the Queue objects that a job of them was planned with.

    A job shows it: it names a queue, or by its saved status a quota that no ResourceQuota explains held it back.

    Args:
        snapshot: what the files hold.
        quotas: the quotas of the file of `--queues`.
    """
    if snapshot.queues or quotas:
        return
    for job in snapshot.jobs:
        if job.problem or job.kueue is not None:
            continue
        was_held = job.status is not None and job.status.reason == Reason.QUOTA_REACHED
        is_held = was_held and not snapshot.resource_quotas
        if is_held or job.queue != DEFAULT_QUEUE:
            held = " and its status says QuotaReached" if is_held else ""
            yield (
                f"job {job.key} is in queue {job.queue}{held}, but the files have no Queue object, so no quota is"
                " counted; if the cluster has queues, add queues.paddlepaddle.org to kubectl get"
            )
            return


def _compose(text: str, name: str) -> yaml.Node:
    with errors_with_position(name):
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        raise ConfigError(f"{name} is empty; {_EXAMPLE}, or remove the flag")
    return root


def _quota(node: yaml.Node, name: str, queue: str) -> Quota:
    amounts, best_effort = [], False
    for key, at, value in _entries(node, name, f"queue {queue}"):
        if key == _BEST_EFFORT:
            best_effort = _is_allowed(value, f"{at}: queue {queue}")
        else:
            amounts.append((key, at, value))
    return Quota(queue, tuple(sorted(_amounts(amounts, queue))), best_effort=best_effort)


def _is_allowed(value: yaml.Node, at: str) -> bool:
    word = value.value if isinstance(value, yaml.ScalarNode) else ""
    if word not in _ALLOWED:
        raise ConfigError(f"{at}: {_BEST_EFFORT} is {word[:40]!r}; write Allowed or Refused")
    return _ALLOWED[word]


def _amounts(entries: Iterable[tuple[str, str, yaml.Node]], queue: str) -> Iterator[tuple[str, int]]:
    seen = set()
    for resource, at, value in entries:
        known = GPU if resource == OLD_GPU else resource
        if known not in _PLAIN and not known.startswith("hugepages-") and not _DEVICE.fullmatch(known):
            raise ConfigError(
                f"{at}: queue {queue}: resource {resource[:80]!r} is unknown; use {', '.join(_PLAIN)}, or the full"
                f" name of a device such as {GPU}"
            )
        if known in seen:
            raise ConfigError(f"{at}: queue {queue}: {known} appears twice; keep one of them")
        seen.add(known)
        if not isinstance(value, yaml.ScalarNode):
            raise ConfigError(f"{at}: queue {queue}: {known} is not a quantity; write a number such as 64 or 256Gi")
        try:
            yield known, _amount(value.value, known)
        except ConfigError as error:
            raise ConfigError(f"{at}: queue {queue}: {error}") from error


def _amount(value: str, resource: str) -> int:
    """Return the quantity in base units; devices and pods must be whole numbers."""
    pieces = "devices" if is_device(resource) else PODS
    if (is_device(resource) or resource == PODS) and exact_quantity(value, resource).denominator != 1:
        raise ConfigError(f"{resource} {value} is not a whole number; {pieces} cannot be divided, write 0 or more")
    return parse_quantity(value, resource)


def _entries(node: yaml.Node, name: str, what: str) -> Iterator[tuple[str, str, yaml.Node]]:
    """Yield each key of a mapping with its position and its value.

    Raises:
        ConfigError: the node is not a mapping, a key is not a scalar, or a key appears twice.
    """
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{_position(name, node)}: {what} must be a mapping; {_EXAMPLE}")
    try:
        reject_duplicate_keys(node)
    except DuplicateKeyError as error:
        raise ConfigError(f"{name}, line {error.line}: {what}: {error}") from error
    for key, value in node.value:
        at = _position(name, key)
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{at}: {what}: a key must be a name; {_EXAMPLE}")
        yield key.value, at, value


def _position(name: str, node: yaml.Node) -> str:
    return f"{name}, line {node.start_mark.line + 1}"
