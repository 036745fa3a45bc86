"""The collections of the API server that edl watches, and which of them a decision needs.

They are: nodes, the jobs' pods in every phase (a finished pod would otherwise disappear with its exit code), all
other pods that are not finished, TrainingJobs, DaemonSets, PriorityClasses, Queues, ResourceQuotas, what rules
between pods and volumes depend on, the workloads of others that edl can resize, and the objects of Kueue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from edl.clock import Clock
from edl.kube.client.session import ApiSession
from edl.kube.mirror.kueue_mirror import KUEUE_OBJECTS
from edl.kube.mirror.mirrored import RULE_OBJECTS, Mirrored
from edl.kube.mirror.reflector import Reflector, ReflectorCalls, ReflectorPace, Resource
from edl.kube.mirror.store import ObjectStore
from edl.kube.translate.decoders import (
    DAEMON_SETS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    Decoder,
)
from edl.kube.translate.objects import TRAINING_JOB_API, HasMetadata
from edl.kube.translate.queues import QUEUES
from edl.model.names import LABEL_JOB, WorkloadKind
from edl.model.units import listed

T = TypeVar("T", bound=HasMetadata)

_FORBIDDEN = 403
JOBS_PATH = f"/apis/{TRAINING_JOB_API}"
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class Watched:
    """A reflector for each collection.

    Args:
        session: the API server.
        clock: for pauses and timeouts.
        mirrored: which jobs and workloads count.
        pace: sizes and times of every reflector.
        calls: what every reflector calls.

    Attributes:
        nodes, jobs, daemonsets, classes, quotas, queues: of these objects; jobs by namespace if only some count.
        pods: the reflector of the jobs' pods, and that of all others.
        rule_objects, kueue: those of such objects, by name.
        workloads: those of the workloads of others.
    """

    def __init__(
        self, session: ApiSession, clock: Clock, mirrored: Mirrored, pace: ReflectorPace, calls: ReflectorCalls[Any]
    ) -> None:
        self._session, self._clock, self._pace, self._calls = session, clock, pace, calls
        self._requires_jobs = mirrored.requires_jobs
        arrivals = count()
        own = Resource("/api/v1/pods", label_selector=LABEL_JOB)
        others = Resource("/api/v1/pods", label_selector=f"!{LABEL_JOB}", field_selector=UNFINISHED)
        self.nodes = self._reflector(Resource("/api/v1/nodes"), NODES)
        self.pods = tuple(self._reflector(r, PODS, arrivals) for r in (own, others))
        paths = [f"{JOBS_PATH}/namespaces/{name}/trainingjobs" for name in sorted(set(mirrored.namespaces))]
        self.jobs = tuple(
            self._reflector(Resource(path), TRAINING_JOBS) for path in paths or [f"{JOBS_PATH}/trainingjobs"]
        )
        self.daemonsets = self._reflector(Resource("/apis/apps/v1/daemonsets"), DAEMON_SETS)
        self.classes = self._reflector(Resource("/apis/scheduling.k8s.io/v1/priorityclasses"), PRIORITY_CLASSES)
        self.quotas = self._reflector(Resource("/api/v1/resourcequotas"), RESOURCE_QUOTAS)
        self.rule_objects: dict[str, Reflector[Any]] = {
            name: self._reflector(Resource(path), decoder) for name, (path, decoder) in RULE_OBJECTS.items()
        }
        self.queues = self._reflector(Resource(f"{JOBS_PATH}/queues"), QUEUES)
        self.kueue: dict[str, Reflector[Any]] = {
            name: self._reflector(Resource(path), decoder) for name, (path, decoder) in KUEUE_OBJECTS.items()
        }
        self.workloads: dict[WorkloadKind, Reflector[Any]] = {
            kind: self._reflector(Resource(f"/apis/{reader.api[0]}/{reader.api[2]}"), reader.decoder)
            for kind, reader in mirrored.workloads.items()
        }

    def all(self) -> tuple[Reflector[Any], ...]:
        """Every collection, those first that a decision needs."""
        jobs = () if self._requires_jobs else self.jobs
        return (
            *self.needed(),
            *jobs,
            self.quotas,
            self.queues,
            *self.rule_objects.values(),
            *self.workloads.values(),
            *self.kueue.values(),
        )

    def needed(self) -> tuple[Reflector[Any], ...]:
        """The collections that must be in sync before any decision.

        Without ResourceQuotas edl goes by what the API server rejects, and without the right to read other workloads
        their pods are those of somebody else. A cluster may have no resource for Queues; see `unready`.
        """
        jobs = self.jobs if self._requires_jobs else ()
        return (self.nodes, *self.pods, *jobs, self.daemonsets, self.classes)

    def written(self, *, names_kueue: bool) -> tuple[Reflector[Any], ...]:
        """The collections that edl writes: the pods of jobs, the jobs, and if Kueue admits any their Workloads.

        Args:
            names_kueue: a job names a queue of Kueue.
        """
        workloads = self.kueue["workloads"]
        is_there = names_kueue and workloads.synced.is_set() and not workloads.refusal
        return (self.pods[0], *self.jobs, *((workloads,) if is_there else ()))

    def mirrors(self, kind: str) -> Sequence[Reflector[Any]]:
        """The reflectors whose watches show objects of a kind."""
        mirrors: dict[str, Sequence[Reflector[Any]]] = {
            "Pod": self.pods,
            "TrainingJob": self.jobs,
            "Workload": (self.kueue["workloads"],),
            **{other.value: (reflector,) for other, reflector in self.workloads.items()},
        }
        return mirrors.get(kind, ())

    def mirror(self, kind: str, metadata: Mapping[str, Any]) -> Reflector[Any] | None:
        """The reflector whose watch shows an object of that kind; None if there is none."""
        mirrors = self.mirrors(kind)
        if kind == "Pod":
            return mirrors[LABEL_JOB not in (metadata.get("labels") or {})]
        one = f"/namespaces/{metadata.get('namespace')}/"
        return next((r for r in mirrors if len(mirrors) == 1 or one in r.resource.path), None)

    def unseen_rules(self) -> list[str]:
        """Warn if edl may not read some objects that rules depend on: kube-scheduler obeys these rules anyway."""
        objects = self.rule_objects.values()
        closed = [r.resource.path.rpartition("/")[2] for r in objects if r.refusal == _FORBIDDEN]
        if not closed:
            return []
        return [f"{listed(closed)} cannot be read (403), so plans do not see the rules of these; give edl the right"]

    def _reflector(
        self, resource: Resource, decoder: Decoder[T], arrivals: Iterator[int] | None = None
    ) -> Reflector[T]:
        return Reflector(
            self._session,
            resource,
            decoder,
            ObjectStore[T](arrivals),
            self._clock,
            pace=self._pace,
            calls=self._calls,
        )
