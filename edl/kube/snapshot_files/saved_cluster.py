"""A saved cluster: JSON and YAML files, read without access to a cluster.

The files can hold any mix of `kubectl get -o json`, `-o yaml`, Lists, several documents and hand-written objects.
Kinds that a plan does not need are ignored. A file that cannot be read is an error, see `documents`. An object whose
fields are not valid is left out and reported. Jobs are validated as the controller of a default installation
validates them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from edl.api.checkpoints import checkpoints_warning
from edl.api.queues import QUEUE_KIND, parse_queue
from edl.api.unknown import unknown_fields
from edl.api.v1 import API_VERSION, GROUP, KIND, parse_job
from edl.errors import ConfigError, InvalidJobError
from edl.kube.snapshot_files.documents import list_objects, quoted, read_documents
from edl.kube.snapshot_files.kueue_files import kueue_warnings
from edl.kube.translate.admission.objects import ADMISSION, LIMIT_RANGES
from edl.kube.translate.admission.saved import not_asked
from edl.kube.translate.decoders import (
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    DAEMON_SETS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    STORAGE_CLASSES,
    TRAINING_JOBS,
    VOLCANO_QUEUES,
    VOLUME_CLAIMS,
    VOLUMES,
    Decoder,
    Quarantined,
)
from edl.kube.translate.devices.decoders import BY_API as DEVICES_BY_API
from edl.kube.translate.devices.decoders import GROUP as DEVICE_GROUP
from edl.kube.translate.devices.decoders import unread as unread_device
from edl.kube.translate.kueue.objects import API as KUEUE_API
from edl.kube.translate.kueue.objects import DECODERS as KUEUE_DECODERS
from edl.kube.translate.kueue.objects import kueue_of
from edl.kube.translate.objects import TRAINING_JOB_API
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.queues import QUEUES
from edl.kube.translate.rules.decoders import RULE_DECODERS
from edl.kube.translate.rules.facts import RuleFacts, RuleObjects, read_facts
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.kube.translate.workload_reader import WorkloadObject
from edl.kube.workloads.annotations import ELASTIC, is_elastic
from edl.kube.workloads.registry import ADAPTERS
from edl.kube.workloads.unresizable import UNRESIZABLE
from edl.kube.yaml_files import bytes_of, read_text
from edl.model.cluster import ClusterSnapshot
from edl.model.names import CONTROLLER_NAMESPACE
from edl.model.times import seconds_of

STANDARD_INPUT = "-"

_WORKLOADS = {adapter.api[:2]: adapter for adapter in ADAPTERS.values()}
_IN_ANY_VERSION = {(adapter.api[0].partition("/")[0], adapter.api[1]): adapter.decoder for adapter in UNRESIZABLE}
"""Kinds of which edl reads only whether they ask to be resized, by group and kind."""

READ: dict[tuple[str, str], Decoder[Any]] = {
    ("v1", "Node"): NODES,
    ("v1", "Pod"): PODS,
    (TRAINING_JOB_API, "TrainingJob"): TRAINING_JOBS,
    (TRAINING_JOB_API, QUEUE_KIND): QUEUES,
    ("apps/v1", "DaemonSet"): DAEMON_SETS,
    ("scheduling.k8s.io/v1", "PriorityClass"): PRIORITY_CLASSES,
    ("v1", "ResourceQuota"): RESOURCE_QUOTAS,
    ("v1", "LimitRange"): LIMIT_RANGES,
    ("v1", "PersistentVolume"): VOLUMES,
    ("v1", "PersistentVolumeClaim"): VOLUME_CLAIMS,
    ("v1", "Namespace"): NAMESPACES,
    ("storage.k8s.io/v1", "StorageClass"): STORAGE_CLASSES,
    ("storage.k8s.io/v1", "CSINode"): CSI_NODES,
    ("storage.k8s.io/v1", "CSIDriver"): CSI_DRIVERS,
    ("storage.k8s.io/v1", "CSIStorageCapacity"): CSI_CAPACITIES,
    ("scheduling.volcano.sh/v1beta1", "Queue"): VOLCANO_QUEUES,
    **{(api, "PodGroup"): decoder for api, decoder in POD_GROUPS.items()},
    **DEVICES_BY_API,
    **{api: adapter.decoder for api, adapter in _WORKLOADS.items()},
    **{(KUEUE_API, kind): decoder for kind, decoder in KUEUE_DECODERS.items()},
    **ADMISSION,
}
_NAMESPACED = {
    *("Pod", "TrainingJob", "DaemonSet", "ResourceQuota", "LimitRange", "PersistentVolumeClaim"),
    *("ResourceClaim", "ResourceClaimTemplate", "Workload", "LocalQueue", "CSIStorageCapacity"),
    *(decoder.kind for decoder in POD_GROUPS.values()),
    *(a.decoder.kind for a in _WORKLOADS.values()),
}
_TIME_KEY = re.compile(r"([tT]ime(stamp)?|At)$")
_NO_TIMES = {"annotations", "labels", "fieldsV1", "spec"}

Identity = tuple[str, str, str]
"""Kind, namespace and name; the kind is that of the decoder, because two groups have a kind Job."""


@dataclass(frozen=True, slots=True)
class SavedCluster:
    """The content of the files.

    Attributes:
        objects: the decoded objects; a later object replaces an earlier one of the same name.
        quarantined: the objects that cannot be decoded.
        newest_s: the newest time in the files, in seconds since the epoch; None if they contain none.
        first: the decoded objects of the first file alone.
        first_name: the name of the first file.
        places: the file and the position of each object.
    """

    objects: dict[Identity, Any]
    quarantined: tuple[Quarantined, ...]
    newest_s: float | None
    first: dict[Identity, Any] = field(default_factory=dict)
    first_name: str = ""
    places: Mapping[Identity, str] = field(default_factory=dict)

    @property
    def base(self) -> SavedCluster | None:
        """The cluster of the first file alone, at the same time.

        None if it has no node or later files change nothing.
        """
        if self.first == self.objects or not any(kind == "Node" for kind, _, _ in self.first):
            return None
        return SavedCluster(self.first, (), self.newest_s)

    def snapshot(self, now_s: float | None = None) -> tuple[ClusterSnapshot, tuple[Quarantined, ...]]:
        """Return the cluster as a decision reads it, and the objects that are left out.

        Args:
            now_s: the time of the snapshot in seconds since the epoch; by default the newest time in the files, or 0.
        """
        newest_s = 0.0 if self.newest_s is None else self.newest_s
        translator = Translator(controller_namespace=CONTROLLER_NAMESPACE)
        snapshot = translator.snapshot(
            now_s=newest_s if now_s is None else now_s,
            objects=ClusterObjects(
                nodes=self._of("Node"),
                pods=self._of("Pod"),
                jobs=self._of("TrainingJob"),
                workloads=self._workloads(),
                daemonsets=self._of("DaemonSet"),
                priority_classes=self._of("PriorityClass"),
                resource_quotas=self._of("ResourceQuota"),
                queues=self._of(QUEUE_KIND),
                unread_queues=[one for one in self.quarantined if one.kind == QUEUE_KIND],
                kueue=kueue_of(lambda kind: [*self._of(kind)]),
                facts=self._facts(),
            ),
        )
        unread = (replace(one, place=self.places.get(_identity(one), "")) for one in translator.quarantined)
        return snapshot, (*self.quarantined, *unread)

    def _facts(self) -> RuleFacts:
        """Collect the objects that rules read; kinds with unreadable objects in the files count as incomplete."""
        unread = {one.kind for one in self.quarantined}
        found: dict[str, Any] = {name: self._of(decoder.kind) for name, decoder in RULE_DECODERS.items()}
        complete = frozenset(name for name, decoder in RULE_DECODERS.items() if decoder.kind not in unread)
        return read_facts(RuleObjects(**found, complete=complete))

    def warnings(self) -> Iterator[str]:
        """Yield what is wrong with the files, or not known from them, although a plan can be made."""
        yield from self.dropped()
        yield from self.replaced_jobs()
        yield from self.not_asked()
        yield from kueue_warnings(self._of, self._workloads())

    def dropped(self) -> Iterator[str]:
        """Yield a warning for each unknown field of a valid job or queue, and for checkpoints that nothing keeps."""
        for source in self._of("TrainingJob"):
            with suppress(InvalidJobError):
                job = parse_job(source.body)
                for warning in unknown_fields(job.spec, source.body.get("spec")):
                    yield f"job {job.key}: {warning}"
                if warning := checkpoints_warning(job):
                    yield f"job {job.key}: {warning}"
        for source in self._of(QUEUE_KIND):
            with suppress(ConfigError):
                body = {"metadata": {"name": source.metadata.name}, "spec": source.spec}
                for warning in unknown_fields(parse_queue(body), source.spec, QUEUE_KIND):
                    yield f"queue {source.metadata.name}: {warning}"

    def not_asked(self) -> Iterator[str]:
        """Yield a warning for each object in the files that may change or reject new pods."""
        return not_asked(self._of, self._workloads())

    def reject_broken_queues(self) -> None:
        """Refuse a Queue that is not valid: without its limits the plan would be that of another cluster.

        Raises:
            ConfigError: a Queue is not valid; the message names each with the value, the rule and the remedy.
        """
        broken = [
            (self.places.get(_identity(one), ""), one.name, one.problem)
            for one in self.quarantined
            if one.kind == QUEUE_KIND
        ]
        for identity in (one for one in self.objects if one[0] == QUEUE_KIND):
            name, source = identity[2], self.objects[identity]
            try:
                parse_queue({"metadata": {"name": name}, "spec": source.spec})
            except ConfigError as error:
                broken.append((self.places.get(identity, ""), name, str(error)))
        if broken:
            raise ConfigError(
                "; ".join(f"{place}: Queue {name} is not valid: {problem}" for place, name, problem in broken)
            )

    def replaced_jobs(self) -> Iterator[str]:
        """Yield a warning for each job of the first file that is another one in a later file."""
        for identity, job in self.first.items():
            kind, namespace, name = identity
            if kind == "TrainingJob" and self.objects.get(identity) != job:
                yield (
                    f"job {namespace}/{name} of {self.first_name} is replaced by {self.places.get(identity)};"
                    " to plan for both, give the new one another name"
                )

    def _workloads(self) -> list[WorkloadObject]:
        return [(a, one) for a in _WORKLOADS.values() for one in self._of(a.decoder.kind)]

    def _of(self, kind: str) -> list[Any]:
        return [obj for identity, obj in self.objects.items() if identity[0] == kind]


def read_snapshot_files(paths: Sequence[str], *, read_stdin: Callable[[], bytes] | None = None) -> SavedCluster:
    """Read files; an object of a later file replaces an object of the same name.

    Args:
        paths: names of files; `-` is standard input.
        read_stdin: reads standard input to its end.

    Raises:
        ConfigError: a file cannot be read, is neither JSON nor YAML, or contains a value that is no
            Kubernetes object.
    """
    if paths.count(STANDARD_INPUT) > 1:
        raise ConfigError("-f - is given more than once, but standard input can be read only once; give it once")
    stdin_bytes = read_stdin or sys.stdin.buffer.read
    named = (("standard input", stdin_bytes) if path == STANDARD_INPUT else (path, bytes_of(path)) for path in paths)
    return read_snapshot_texts((name, read_text(name, read)) for name, read in named)


def read_snapshot_texts(texts: Iterable[tuple[str, str]]) -> SavedCluster:
    """Read texts as `read_snapshot_files` reads files.

    Args:
        texts: (name for messages, text); it is read one by one, each after the one before it was understood.

    Raises:
        ConfigError: a text is neither JSON nor YAML, or contains a value that is no Kubernetes object.
    """
    objects: dict[Identity, Any] = {}
    places: dict[Identity, str] = {}
    unreadable: dict[Identity, Quarantined] = {}
    times: list[float] = []
    first: tuple[dict[Identity, Any], str] | None = None
    for name, text in texts:
        documents = list(read_documents(text, name))
        if not documents:
            raise ConfigError(f"{name} contains no object; save one with kubectl get -o yaml")
        times += _times(documents, budget=100 * len(text) + 100_000, name=name)
        for place, body in list_objects(documents):
            _add(place, body, objects, unreadable, places)
        first = (dict(objects), name) if first is None else first
    newest_s = max(times, default=None)
    return SavedCluster(objects, tuple(unreadable.values()), newest_s, *(first or ({}, "")), places)


def _add(
    place: str,
    body: dict[str, Any],
    objects: dict[Identity, Any],
    unreadable: dict[Identity, Quarantined],
    places: dict[Identity, str],
) -> None:
    """Decode an object and add it to `objects` or `unreadable`, if a plan needs its kind."""
    version, kind = body["apiVersion"], body["kind"]
    decoder = READ.get((version, kind)) or _IN_ANY_VERSION.get((version.partition("/")[0], kind))
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    is_asking = isinstance(metadata, dict) and _asks(metadata.get("annotations"))
    if decoder is None and version.startswith(f"{DEVICE_GROUP}/"):
        if problem := unread_device(version, kind):
            namespace = str((metadata or {}).get("namespace") or DEFAULT_NAMESPACE) if kind in _NAMESPACED else ""
            unreadable[kind, namespace, str(name)] = Quarantined(kind, namespace, str(name), "", problem, place)
        return
    if decoder is None:
        _reject_mistaken_kind(place, version, kind, is_asking=is_asking)
        if is_asking:
            problem = f"annotation {ELASTIC} asks edl to resize it, and edl resizes no {kind}; remove the annotation"
            namespace = str((metadata or {}).get("namespace") or DEFAULT_NAMESPACE)
            unreadable[kind, namespace, str(name)] = Quarantined(kind, namespace, str(name), "", problem, place)
        return
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{place}: a {kind} has no metadata.name; give it one")
    namespace = (metadata or {}).get("namespace") or DEFAULT_NAMESPACE if decoder.kind in _NAMESPACED else ""
    identity = (decoder.kind, str(namespace), name)
    decoded = decoder.from_dict(body)
    objects.pop(identity, None)
    unreadable.pop(identity, None)
    places[identity] = place
    if isinstance(decoded, Quarantined):
        unreadable[identity] = replace(decoded, place=place)
    else:
        objects[identity] = decoded


def _asks(annotations: object) -> bool:
    """Return True if the annotations of an object of any kind ask edl to resize it."""
    return isinstance(annotations, dict) and is_elastic(annotations)


def _reject_mistaken_kind(place: str, version: str, kind: str, *, is_asking: bool) -> None:
    """Raise a ConfigError for a needed kind in an unknown version, and for an unknown kind of edl's group.

    Other objects are ignored, workloads that do not ask to be resized, too; these two are probably mistakes.
    """
    group = GROUP if version == GROUP else version.rpartition("/")[0]
    for known, name in READ:
        if name == kind and known.rpartition("/")[0] == group and (is_asking or (known, name) not in _WORKLOADS):
            raise ConfigError(
                f"{place}: a {kind} has apiVersion {version}, which edl does not read; save it as {known}"
            )
    if group == GROUP:
        raise ConfigError(
            f"{place}: kind {quoted(kind)} is unknown in {GROUP}; write {KIND} or {QUEUE_KIND}, with apiVersion"
            f" {API_VERSION}"
        )


def _times(documents: Sequence[tuple[str, Any]], *, budget: int, name: str) -> list[float]:
    """Return the times in the documents that are not later than the moment of saving: not those in specs or labels.

    With aliases, a small YAML file can expand without limit, so more values than `budget` are an error.
    """
    found: list[float] = []
    waiting: list[Any] = [body for _, body in documents]
    while waiting:
        value = waiting.pop()
        budget -= 1
        if budget < 0:
            raise ConfigError(f"{name} is too large after its YAML aliases are expanded; write it without aliases")
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            for key, item in value.items():
                if isinstance(item, dict | list):
                    if key not in _NO_TIMES:
                        waiting.append(item)
                elif isinstance(item, str) and isinstance(key, str) and _TIME_KEY.search(key):
                    time_s = seconds_of(item)
                    if time_s is not None:
                        found.append(time_s)
    return found


def _identity(one: Quarantined) -> Identity:
    return one.kind, one.namespace or (DEFAULT_NAMESPACE if one.kind in _NAMESPACED else ""), one.name
