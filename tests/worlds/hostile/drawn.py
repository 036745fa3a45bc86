"""Objects at random that a user may create, field by field: TrainingJobs and Queues by their schema, workloads.

What a schema says of a field (type, bounds, choices) says what is drawn for it, the extremes most often. The parts
of a pod that decide where it may run are drawn by their limits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from edl.api.crd import render_crd, render_queue_crd
from edl.model import pod_limits
from tests.worlds import raw_objects

Object = dict[str, Any]
Draw = Callable[[Random], Any]
KINDS = ("TrainingJob", "Job", "RayCluster", "VolcanoJob", "Queue")
_QUANTITIES = ("1m", "100m", "1", "3", "15", "7Gi", "64Mi", "1Ki", "9999999P", "0.5")
_COUNTS = (0, 1, 2, 10, 300, 3000, 10_000)
_KEYS = ("kubernetes.io/hostname", "rack", "zone", "kind", "gone")
_TOPOLOGIES: tuple[Object, ...] = (
    {"key": "rack"},
    {"key": "rack", "mode": "Required"},
    {"levels": [{"key": "zone"}, {"key": "rack", "mode": "Required"}, {"key": "kubernetes.io/hostname"}]},
    {"levels": [{"key": key} for key in ("zone", "rack", "kubernetes.io/hostname")], "slice": {"size": 2}},
)
"""Its fields depend on each other, so they are drawn together; slices fit some bounds of trainers."""
_VALUE_OF = {"kubernetes.io/hostname": "n{:05d}", "rack": "r{}", "zone": "z{}", "kind": "{}", "gone": "g{}"}


@dataclass(frozen=True, slots=True)
class Genes:
    """An object as it was drawn.

    Attributes:
        kind: one of `KINDS`.
        fields: values by path, `/` between the steps.
        running: how many of its trainers run already.
        differs: objects of one group request different amounts.
    """

    kind: str
    fields: Mapping[str, Any]
    running: int = 0
    differs: bool = False


def drawn(random: Random) -> Genes:
    """An object at random."""
    kind = random.choice(("TrainingJob", *KINDS))
    names = sorted(_draws(kind))
    chosen = random.sample(names, random.randint(1, min(len(names), 14)))
    fields = {name: _draws(kind)[name](random) for name in chosen}
    return Genes(kind, fields, random.choice((0, 0, 0, 0, 10, 300, 1000)), random.random() < 0.5)


def changed(genes: Genes, random: Random) -> Genes:
    """The object with one to three fields drawn anew, added, or taken away."""
    draws, fields = _draws(genes.kind), dict(genes.fields)
    for name in random.sample(sorted(draws), random.randint(1, 3)):
        if name in fields and random.random() < 0.3:
            del fields[name]
        else:
            fields[name] = draws[name](random)
    running = genes.running if random.random() < 0.7 else random.choice((0, 0, 10, 300, 1000))
    return Genes(genes.kind, fields, running, genes.differs)


@functools.cache
def _draws(kind: str) -> Mapping[str, Draw]:
    """What is drawn for each field of a kind."""
    if kind == "Queue":
        return dict(_by_schema(_schema_of(render_queue_crd()), "spec"))
    if kind == "TrainingJob":
        by_schema = dict(_by_schema(_schema_of(render_crd()), "spec"))
        by_schema = {name: draw for name, draw in by_schema.items() if not name.startswith("spec/topology/")}
        templates = {
            f"spec/{role}/template/spec/{name}": draw
            for role in ("trainer", "pserver", "master")
            for name, draw in _POD.items()
        }
        return by_schema | templates | {"spec/topology": _one_of(*_TOPOLOGIES)}
    bounds = {f"bounds/{name}": _one_of(*map(str, _COUNTS)) for name in ("min-instance", "max-instance")}
    return {**bounds, **_OWN[kind], **{f"pod/{name}": draw for name, draw in _POD.items()}}


def _schema_of(crd: Any) -> Object:
    schema: Object = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def _by_schema(schema: Object, path: str) -> Iterator[tuple[str, Draw]]:
    """Each field that the schema names, but the templates of pods."""
    for name, field in schema.get("properties", {}).items():
        below = f"{path}/{name}"
        if name == "template":
            continue
        if field.get("properties") and not field.get("x-kubernetes-int-or-string"):
            yield from _by_schema(field, below)
        else:
            yield below, functools.partial(_valid, field)


def _valid(schema: Object, random: Random) -> Any:
    """A value that a schema accepts, or nearly: patterns and rules between fields are not looked at."""
    if choices := schema.get("enum"):
        return random.choice(choices)
    if schema.get("x-kubernetes-int-or-string"):
        return random.choice(_QUANTITIES)
    kind = schema.get("type")
    if kind in {"integer", "number"}:
        low, high = schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)
        return random.choice([low, high, *(n for n in _COUNTS if low <= n <= high)])
    if kind == "array":
        count = random.choice((0, 1, 3, schema.get("maxItems", 10)))
        return [_valid(schema["items"], random) for _ in range(count)]
    if kind == "object":
        return _members(schema, random)
    return random.choice((True, False)) if kind == "boolean" else _text(schema, random)


def _members(schema: Object, random: Random) -> Object:
    of_all = schema.get("additionalProperties")
    if isinstance(of_all, dict):
        names = ("cpu", "memory", "pods", "nvidia.com/gpu", *(f"example.com/r{i}" for i in range(12)))
        return {name: _valid(of_all, random) for name in names[: random.choice((1, 2, 3, 16))]}
    return {name: _valid(field, random) for name, field in schema.get("properties", {}).items()}


def _text(schema: Object, random: Random) -> str:
    longest = int(schema.get("maxLength", 60))
    known = ("default", "rack", "kubernetes.io/hostname", "index:100", "index:999999999999999999", "x" * longest)
    return random.choice(known)


def _one_of(*values: Any) -> Draw:
    return lambda random: random.choice(values)


def _terms(random: Random, count: int) -> list[Object]:
    """Terms with as many values as a pod may list, each with another part of them."""
    key = random.choice(_KEYS)
    each = random.choice((1, 7, max(1, pod_limits.MAX_VALUES // count)))
    operator = random.choice(("In", "In", "NotIn", "Exists"))
    step, terms = random.choice((1, 31, each)), []
    for i in range(count):
        values = [_VALUE_OF[key].format(i * step + k) for k in range(each)]
        terms.append(_term(key, operator, values))
    return terms


def _term(key: str, operator: str, values: list[str]) -> Object:
    expression: Object = {"key": key, "operator": operator}
    if operator != "Exists":
        expression["values"] = values
    return {"matchExpressions": [expression]}


def _affinity(random: Random) -> Object:
    of_nodes: Object = {}
    if required := random.choice((0, 1, 8, pod_limits.MAX_TERMS)):
        terms = _terms(random, required)
        of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if preferred := random.choice((0, 1, 4, pod_limits.MAX_TERMS)):
        of_nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": 1 + i % 100, "preference": term} for i, term in enumerate(_terms(random, preferred))
        ]
    return {"nodeAffinity": of_nodes}


def _containers(random: Random) -> list[Object]:
    names = ("cpu", "memory", *(f"example.com/r{i}" for i in range(94)))
    requests = {name: random.choice(_QUANTITIES) for name in names[: random.choice((0, 1, 2, 2, 90))]}
    ports = [{"containerPort": 20_000 + i, "hostPort": 20_000 + i} for i in range(random.choice((0, 0, 1, 256)))]
    first: Object = {"name": "trainer", "image": "x", "resources": {"requests": requests}, "ports": ports}
    more = [{"name": f"c{i}", "image": "x"} for i in range(random.choice((0, 0, 1, 15)))]
    return [first, *more]


_POD: Mapping[str, Draw] = {
    "affinity": _affinity,
    "containers": _containers,
    "initContainers": _containers,
    "nodeSelector": lambda random: {
        **{f"label-{i}": "x" for i in range(random.choice((0, 0, 1, 63)))},
        random.choice(_KEYS): random.choice(("z1", "r1", "a", "n00001")),
    },
    "tolerations": lambda random: [
        {"key": f"taint-{i}", "operator": "Exists"} for i in range(random.choice((1, pod_limits.MAX_TOLERATIONS)))
    ],
    "hostNetwork": _one_of(True, False),
    "priorityClassName": _one_of("edl-training", "system-node-critical", "gone"),
    "schedulerName": _one_of("default-scheduler", "volcano", "gone"),
    "terminationGracePeriodSeconds": _one_of(0, 30, 2**31 - 1),
    "overhead": lambda random: {"cpu": random.choice(_QUANTITIES), "memory": random.choice(_QUANTITIES)},
    "topologySpreadConstraints": lambda random: [
        {
            "maxSkew": 1,
            "topologyKey": random.choice(_KEYS),
            "whenUnsatisfiable": random.choice(("DoNotSchedule", "x")),
        }
    ],
    "volumes": lambda random: [{"name": f"v{i}", "emptyDir": {}} for i in range(random.choice((1, 64)))],
}
"""Fields of the spec of a pod."""

_OWN: Mapping[str, Mapping[str, Draw]] = {
    "Job": {
        "spec/parallelism": _one_of(*_COUNTS),
        "spec/completions": _one_of(*_COUNTS),
        "spec/completionMode": _one_of("Indexed", "NonIndexed"),
        "spec/backoffLimitPerIndex": _one_of(0, 5),
        "spec/suspend": _one_of(True, False),
        "status": _one_of({"failedIndexes": "0-4999"}, {"failedIndexes": ",".join(map(str, range(0, 9000, 2)))}),
    },
    "RayCluster": {
        "spec/workerGroupSpecs/0/replicas": _one_of(*_COUNTS),
        "spec/workerGroupSpecs/0/maxReplicas": _one_of(*_COUNTS),
        "spec/workerGroupSpecs/0/numOfHosts": _one_of(1, 4),
        "spec/workerGroupSpecs/1": lambda random: raw_objects.ray_group("more", random.choice(_COUNTS)),
        "spec/suspend": _one_of(True, False),
    },
    "VolcanoJob": {
        "spec/minAvailable": _one_of(*_COUNTS),
        "spec/tasks/0/replicas": _one_of(*_COUNTS),
        "spec/tasks/1/replicas": _one_of(*_COUNTS),
        "spec/tasks/2": lambda random: raw_objects.task("more", random.choice(_COUNTS)),
        "spec/queue": _one_of("default", "gone"),
    },
}
"""Fields that a workload of another controller has besides its bounds and its pods."""


def objects_of(genes: Genes, number: int, nodes: int) -> list[Object]:
    """The object that was drawn, and its running pods.

    Args:
        genes: as drawn.
        number: of this one in its group; its name and, if they differ, its requests depend on it.
        nodes: how many nodes there are; its pods run on a tenth of them.
    """
    name = f"drawn-{number}"
    body = _small(genes.kind, name, 100 + 7 * number * genes.differs)
    for path, value in sorted(genes.fields.items()):
        steps = path.split("/")
        if steps[0] == "bounds":
            body["metadata"]["annotations"][f"paddlepaddle.org/{steps[1]}"] = value
        else:
            below = ["spec", *_TEMPLATES[genes.kind], *steps[1:]] if steps[0] == "pod" else steps
            _put(body, below, value)
    if genes.kind == "Queue":
        job = _small("TrainingJob", name, 100 + 7 * number * genes.differs)
        job["spec"]["queue"] = name
        return [body, job, *_pods("TrainingJob", name, genes.running, number, nodes)]
    return [body, *_pods(genes.kind, name, genes.running, number, nodes)]


_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Job": ("template", "spec"),
    "RayCluster": ("workerGroupSpecs", "0", "template", "spec"),
    "VolcanoJob": ("tasks", "1", "template", "spec"),
}


def _small(kind: str, name: str, millis: int) -> Object:
    """A small valid object of a kind, with the bounds of a large one."""
    bounds = {"paddlepaddle.org/min-instance": "1", "paddlepaddle.org/max-instance": "10000"}
    requests = {"cpu": f"{millis}m", "memory": "64Mi"}
    if kind == "Queue":
        spec = {"nominalQuota": {"cpu": "10"}}
        return {"apiVersion": "paddlepaddle.org/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    if kind == "TrainingJob":
        trainer = {"min-instance": 1, "max-instance": 10_000, "entrypoint": "x", "resources": {"requests": requests}}
        return raw_objects.job(name, uid=f"uid-{name}", spec={"image": "x", "trainer": trainer})
    if kind == "Job":
        body = raw_objects.batch_job(name, annotations=bounds)
        _put(body, ["spec", *_TEMPLATES[kind], "containers", "0", "resources"], {"requests": requests})
        return body
    if kind == "RayCluster":
        return raw_objects.ray_cluster(name, annotations=bounds, groups=[raw_objects.ray_group(cpu=f"{millis}m")])
    tasks = [raw_objects.task("pserver", 2), raw_objects.task("trainer", 3, cpu=f"{millis}m")]
    return raw_objects.volcano_job(name, annotations=bounds, tasks=tasks)


def _pods(kind: str, name: str, count: int, number: int, nodes: int) -> list[Object]:
    """Running trainers of the small object, a hundred on a node at most."""
    own = range(number % 10, nodes, 10)
    pods = []
    for i in range(min(count, 100 * len(own))):
        container = raw_objects.container("100m", "64Mi")
        spec = {"nodeName": f"n{own[i % len(own)]:05d}", "containers": [container]}
        pods.append(_POD_OF[kind](name, i, spec))
    return pods


_POD_OF: Mapping[str, Callable[[str, int, Object], Object]] = {
    "TrainingJob": lambda name, i, spec: raw_objects.trainer(i, job=name, spec=spec),
    "Job": lambda name, i, spec: raw_objects.batch_pod(f"{name}-{i}", job=name, spec=spec),
    "RayCluster": lambda name, i, spec: raw_objects.ray_pod(f"{name}-{i}", cluster=name, spec=spec),
    "VolcanoJob": lambda name, i, spec: raw_objects.volcano_pod(f"{name}-trainer-{i}", job=name, spec=spec),
}


def _put(body: Any, steps: list[str], value: Any) -> None:
    """Set a field; what is missing on the way is made, and a number is an index of a list."""
    at = body
    for step, following in zip(steps, [*steps[1:], ""], strict=True):
        new: Any = value if not following else ([] if following.isdigit() else {})
        if isinstance(at, list):
            index = min(int(step), len(at))
            if index == len(at):
                at.append(new)
            elif not following:
                at[index] = value
            at = at[index]
        elif not following:
            at[step] = value
        else:
            at = at.setdefault(step, new)
