"""Caches what the scopes of quotas read of pods and templates, for as long as these do not change.

A namespace may have thousands of both and several quotas, and quantities take long to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from edl.kube.translate.objects import PodObject, PodSpec
from edl.kube.translate.quotas.scopes import ScopedPod, scoped, scoped_training_pods
from edl.kube.translate.workload_reader import WorkloadReader
from edl.model.jobs import Job
from edl.model.pods import Pod

_Known = dict[tuple[str, str], tuple[object, str, tuple[ScopedPod, ...]]]


class KnownScopes:
    """Caches the properties of pods and jobs that scopes read; what the last snapshot did not use is dropped."""

    def __init__(self) -> None:
        self._pods, self._jobs = _Kept(), _Kept()

    def begin(self) -> None:
        """Begin a snapshot: drop what the last one did not use."""
        self._pods.begin()
        self._jobs.begin()

    def of_pod(self, pod: Pod, source: PodObject, spec: Callable[[Pod], PodSpec]) -> ScopedPod:
        """The properties of a pod of no job that scopes read.

        Args:
            pod: the pod.
            source: the pod as the API server stores it.
            spec: gives its spec.
        """

        def read() -> Iterator[ScopedPod]:
            found = spec(pod)
            yield scoped(found, (found.priority_class_name or "",))

        return self._pods.of((pod.namespace, pod.name), source, "", read)[0]

    def of_job(self, job: Job, found: tuple[WorkloadReader, Any] | None, default: str) -> tuple[ScopedPod, ...]:
        """The properties of a job's pods that scopes read, one entry for each role.

        Args:
            job: the job.
            found: the reader of its kind and its object; None for a TrainingJob.
            default: the PriorityClass of a pod that names none.
        """
        if found is None:
            return self._jobs.of(job.key, job, "", lambda: scoped_training_pods(job))
        reader, source = found
        return self._jobs.of(job.key, source, default, lambda: _of_templates(reader, source, default))


class _Kept:
    """Answers by namespace and name, each with the object that it was read from."""

    def __init__(self) -> None:
        self._now: _Known = {}
        self._before: _Known = {}

    def begin(self) -> None:
        self._before, self._now = self._now, {}

    def of(
        self, key: tuple[str, str], source: object, default: str, read: Callable[[], Iterable[ScopedPod]]
    ) -> tuple[ScopedPod, ...]:
        known = self._now.get(key) or self._before.get(key)
        if known is None or known[0] is not source or known[1] != default:
            known = (source, default, tuple(read()))
        self._now[key] = known
        return known[2]


def _of_templates(reader: WorkloadReader, source: Any, default: str) -> Iterator[ScopedPod]:  # noqa: ANN401 - by kind
    for template in reader.templates(source).values():
        spec = template.spec or PodSpec()
        yield scoped(spec, (spec.priority_class_name or default,))
