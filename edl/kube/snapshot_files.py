"""A cluster that somebody saved: files of JSON and YAML, read without a cluster and without surprises.

Any mix is taken: `kubectl get -o json` and `-o yaml`, Lists, several documents, hand-written objects. Kinds that a
plan does not need are ignored. YAML is read as Kubernetes means it: dates stay text and `yes` is no boolean. A file
that cannot be read is an error that names the file and the place; one object whose fields make no sense is left out,
and reported. Jobs are judged as the controller of a default installation judges them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import yaml
from yaml.composer import Composer

from edl.api.unknown import unknown_fields
from edl.api.v1 import API_VERSION, GROUP, KIND, parse_job
from edl.errors import ConfigError, InvalidJobError
from edl.install.objects import NAMESPACE
from edl.kube.translate.decoders import (
    DAEMON_SETS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    TRAINING_JOBS,
    Decoder,
    Quarantined,
)
from edl.kube.translate.objects import TRAINING_JOB_API
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.snapshot import Translator
from edl.kube.yaml_files import (
    DuplicateKeyError,
    bytes_of,
    errors_with_position,
    object_with_unique_keys,
    read_text,
    reject_duplicate_keys,
)
from edl.model.cluster import ClusterSnapshot
from edl.model.times import seconds_of

STANDARD_INPUT = "-"

_READ: dict[tuple[str, str], Decoder[Any]] = {
    ("v1", "Node"): NODES,
    ("v1", "Pod"): PODS,
    (TRAINING_JOB_API, "TrainingJob"): TRAINING_JOBS,
    ("apps/v1", "DaemonSet"): DAEMON_SETS,
    ("scheduling.k8s.io/v1", "PriorityClass"): PRIORITY_CLASSES,
}
_NAMESPACED = {"Pod", "TrainingJob", "DaemonSet"}
_TIME_KEY = re.compile(r"([tT]ime(stamp)?|At)$")
_NO_TIMES = {"annotations", "labels", "fieldsV1", "spec"}

Identity = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True, slots=True)
class SavedCluster:
    """What was read.

    Attributes:
        objects: decoded, the later of two of one name.
        quarantined: what could not be decoded.
        newest_s: the newest time found anywhere; None where there is none.
        first: decoded from the first file alone; first_name: what to call that.
        places: where each object stands, as errors say it.
    """

    objects: dict[Identity, Any]
    quarantined: tuple[Quarantined, ...]
    newest_s: float | None
    first: dict[Identity, Any] = field(default_factory=dict)
    first_name: str = ""
    places: Mapping[Identity, str] = field(default_factory=dict)

    @property
    def base(self) -> SavedCluster | None:
        """The first file alone, at the same time; None where it holds no node, or where nothing else was read."""
        if self.first == self.objects or not any(kind == "Node" for kind, _, _ in self.first):
            return None
        return SavedCluster(self.first, (), self.newest_s)

    def snapshot(self, now_s: float | None = None) -> tuple[ClusterSnapshot, tuple[Quarantined, ...]]:
        """The cluster as a decision reads it, with all that had to be left out.

        Args:
            now_s: when it was; by default the newest time in it, and 0 where it holds none.
        """
        newest_s = 0.0 if self.newest_s is None else self.newest_s
        translator = Translator(controller_namespace=NAMESPACE)
        snapshot = translator.snapshot(
            nodes=self._of("Node"),
            pods=self._of("Pod"),
            jobs=self._of("TrainingJob"),
            daemonsets=self._of("DaemonSet"),
            priority_classes=self._of("PriorityClass"),
            now_s=newest_s if now_s is None else now_s,
        )
        unread = (replace(one, place=self.places.get(_identity(one), "")) for one in translator.quarantined)
        return snapshot, (*self.quarantined, *unread)

    def dropped(self) -> Iterator[str]:
        """What is written of the jobs and means nothing, as the API server would warn; of those that are valid."""
        for source in self._of("TrainingJob"):
            with suppress(InvalidJobError):
                job = parse_job(source.body)
                for sentence in unknown_fields(job, source.body):
                    yield f"job {job.key}: {sentence}"

    def _of(self, kind: str) -> list[Any]:
        return [obj for identity, obj in self.objects.items() if identity[0] == kind]


def read_snapshot_files(paths: Sequence[str], *, read_stdin: Callable[[], bytes] | None = None) -> SavedCluster:
    """Read files, of which a later one replaces objects of an earlier one.

    Args:
        paths: names of files; `-` is standard input.
        read_stdin: reads standard input to its end.

    Raises:
        ConfigError: a file cannot be read, is neither JSON nor YAML, or holds what is no Kubernetes object.
    """
    if paths.count(STANDARD_INPUT) > 1:
        raise ConfigError("-f - is given twice, but standard input can be read only once; give it once")
    objects: dict[Identity, Any] = {}
    places: dict[Identity, str] = {}
    poison: dict[Identity, Quarantined] = {}
    newest: list[float] = []
    first: dict[Identity, Any] | None = None
    for path in paths:
        name = "standard input" if path == STANDARD_INPUT else path
        of_stdin = read_stdin or sys.stdin.buffer.read
        text = read_text(name, of_stdin if path == STANDARD_INPUT else bytes_of(path))
        documents = list(_documents(text, name))
        if not documents:
            raise ConfigError(f"{name} holds no object; save one with kubectl get -o yaml")
        newest += _times(documents, budget=100 * len(text) + 100_000, name=name)
        for place, body in _objects(documents):
            _take(place, body, objects, poison, places)
        first = dict(objects) if first is None else first
    first_name = "standard input" if paths[:1] == [STANDARD_INPUT] else "".join(paths[:1])
    return SavedCluster(objects, tuple(poison.values()), max(newest, default=None), first or {}, first_name, places)


def _documents(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """The documents of a file with their places; JSON where it begins like JSON, else YAML."""
    start = text.lstrip()[:1]
    if start not in {"{", "["} or name.endswith((".yaml", ".yml")):
        yield from _yaml_documents(text, name)
        return
    try:
        documents = list(_json_documents(text, name))
    except ConfigError:
        try:
            documents = list(_yaml_documents(text, name))
        except ConfigError:
            documents = []
        if name.endswith(".json") or not documents:
            raise
    yield from documents


def _json_documents(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """One JSON value after the other, as several kubectl calls into one pipe give them."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=object_with_unique_keys)
    at, number = 0, 1
    while (at := _skip_space(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{name}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
        except DuplicateKeyError as error:
            raise ConfigError(f"{name}, document {number}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{name}, document {number}: not JSON: {error}") from error
        yield _place(name, number), value
        number += 1


def _yaml_documents(text: str, name: str) -> Iterator[tuple[str, Any]]:
    with errors_with_position(name):
        for number, value in enumerate(yaml.load_all(text, Loader=_Loader), 1):
            if value is not None:
                yield _place(name, number), value


def _objects(documents: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The single objects, those of Lists included; items of a typed list take its kind."""
    waiting = list(reversed(documents))
    while waiting:
        place, body = waiting.pop()
        if not isinstance(body, dict):
            raise ConfigError(
                f"{place}: {_shown(body)} is no Kubernetes object; expected apiVersion, kind and metadata"
            )
        version, kind = body.get("apiVersion"), body.get("kind")
        for key, value in (("apiVersion", version), ("kind", kind)):
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{place}: an object has no {key}{_named(body)}; add it, as kubectl prints it")
        if isinstance(kind, str) and kind.endswith("List") and "items" in body:
            waiting += reversed(list(_items(place, body, kind)))
        else:
            yield place, body


def _items(place: str, body: dict[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    items = body["items"] if body["items"] is not None else []
    if not isinstance(items, list):
        raise ConfigError(f"{place}: items of a {kind} is {_shown(items)}; expected a list of objects")
    inherited = {"apiVersion": body["apiVersion"], "kind": kind.removesuffix("List")} if kind != "List" else {}
    for number, item in enumerate(items, 1):
        yield f"{place}, item {number}", {**inherited, **item} if isinstance(item, dict) else item


def _take(
    place: str,
    body: dict[str, Any],
    objects: dict[Identity, Any],
    poison: dict[Identity, Quarantined],
    places: dict[Identity, str],
) -> None:
    """Decode an object that a plan needs."""
    version, kind = body["apiVersion"], body["kind"]
    decoder = _READ.get((version, kind))
    if decoder is None:
        _refuse_what_was_meant(place, version, kind)
        return
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{place}: a {kind} has no metadata.name; give it one")
    namespace = (metadata or {}).get("namespace") or DEFAULT_NAMESPACE if kind in _NAMESPACED else ""
    identity = (kind, str(namespace), name)
    decoded = decoder.from_dict(body)
    objects.pop(identity, None)
    poison.pop(identity, None)
    places[identity] = place
    if isinstance(decoded, Quarantined):
        poison[identity] = replace(decoded, place=place)
    else:
        objects[identity] = decoded


def _refuse_what_was_meant(place: str, version: str, kind: str) -> None:
    """A known kind in an unknown version, or an unknown kind of our group, would be missed silently."""
    group = GROUP if version == GROUP else version.rpartition("/")[0]
    for known, name in _READ:
        if name == kind and known.rpartition("/")[0] == group:
            raise ConfigError(f"{place}: a {kind} has apiVersion {version}; save it as {known}")
    if group == GROUP:
        raise ConfigError(
            f"{place}: kind {_shown(kind)} is unknown in {GROUP}; write {KIND}, with apiVersion {API_VERSION}"
        )


def _times(documents: Sequence[tuple[str, Any]], *, budget: int, name: str) -> list[float]:
    """Every time in the documents, as far as it tells when they were saved; labels and annotations may tell of more.

    Aliases let a small YAML file stand for an endless one: more values than `budget` are refused.
    """
    found: list[float] = []
    waiting: list[Any] = [body for _, body in documents]
    while waiting:
        value = waiting.pop()
        budget -= 1
        if budget < 0:
            raise ConfigError(f"{name} grows beyond measure when its YAML aliases are followed; write them out")
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


def _place(name: str, number: int) -> str:
    return name if number == 1 else f"{name}, document {number}"


def _named(body: dict[str, Any]) -> str:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f" ({body.get('kind') or 'object'} {name})" if isinstance(name, str) else ""


def _shown(value: object) -> str:
    return f"{str(value)[:40]!r}"


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


# mypy cannot follow a base class that depends on what PyYAML was built with.
class _Loader(Composer, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML by the JSON schema: only what Kubernetes itself would not read as text is a boolean, null or number.

    The parser is libyaml's where there is one; the composer is not, because libyaml's crashes the interpreter on deep
    nesting where this one raises RecursionError.
    """

    def __init__(self, stream: str) -> None:
        super(Composer, self).__init__(stream)
        Composer.__init__(self)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - PyYAML's stubs name it wrongly
        mapping: yaml.MappingNode = super().compose_mapping_node(anchor)
        reject_duplicate_keys(mapping)
        return mapping


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?", "-+0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))
