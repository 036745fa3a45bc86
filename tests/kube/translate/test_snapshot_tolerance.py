"""Unreadable objects are quarantined and do not affect the others; unchanged objects are not translated again."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.model.cluster import ClusterSnapshot
from tests.worlds.raw_objects import (
    DAEMON_SET,
    DECODERS,
    Object,
    container,
    decoded,
    job,
    node,
    owned_by,
    pod,
    sidecar,
    take,
    trainer,
)


def test_an_object_that_cannot_be_translated_is_reported_and_the_others_are_read() -> None:
    translator = Translator()
    found = take(
        node("bad", status={"allocatable": {"cpu": "many"}}),
        node("good"),
        pod("bad", spec={"containers": [container("-1")]}),
        pod("good"),
        translator=translator,
    )
    assert [n.name for n in found.nodes] == ["good"]
    assert [p.name for p in found.pods] == ["good"]
    assert [str(q) for q in translator.quarantined] == [
        "Pod ads/bad is left out: cpu '-1' is negative; write 0 or more",
        "Node bad is left out: cpu 'many' is not a quantity; write a number with a suffix such as 500m or 4Gi",
    ]


def test_unchanged_objects_are_not_translated_again() -> None:
    translator = Translator()
    sources = [decoded(pod("a")), decoded(trainer(0))]
    nodes, jobs = [decoded(node())], [decoded(job())]

    def once() -> ClusterSnapshot:
        return translator.snapshot(now_s=1.0, objects=ClusterObjects(nodes=nodes, pods=sources, jobs=jobs))

    one, two = once(), once()
    assert one == two
    assert one.pods[0] is two.pods[0]
    assert one.nodes[0] is two.nodes[0]
    assert one.jobs[0].pods[0] is two.jobs[0].pods[0]
    assert one.jobs[0].trainer is two.jobs[0].trainer


def test_equal_shapes_are_one_object() -> None:
    one, two = take(pod("a"), pod("b")).pods
    assert one.shape is two.shape


EVERYTHING = {
    "Node": node(
        metadata={"labels": {"a": "b"}, "uid": "u", "creationTimestamp": "2026-01-05T10:00:00Z"},
        spec={"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        status={"conditions": [{"type": "Ready", "status": "True"}]},
    ),
    "Pod": trainer(
        0,
        owner=owned_by("uid-ctr"),
        metadata={"annotations": {"paddlepaddle.org/intent": "x"}, "creationTimestamp": "2026-01-05T10:00:00Z"},
        spec={
            "nodeName": "n1",
            "priority": 1,
            "initContainers": [sidecar("1")],
            "overhead": {"cpu": "1m"},
            "resources": {"requests": {"cpu": "2"}},
            "nodeSelector": {"a": "b"},
            "schedulingGates": [{"name": "g"}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
                                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                            }
                        ]
                    }
                }
            },
        },
        status={
            "phase": "Running",
            "startTime": "2026-01-05T10:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": "1"}},
                    "allocatedResources": {"cpu": "1"},
                    "state": {"running": {"startedAt": "2026-01-05T10:00:00Z"}, "terminated": {"exitCode": 1}},
                }
            ],
        },
    ),
    "TrainingJob": job(
        status={
            "phase": "Running",
            "conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-05T10:00:00Z"}],
            "lastResize": {"time": "2026-01-05T10:00:00Z", "from": 1, "to": 2, "reason": "x"},
        }
    ),
    "DaemonSet": DAEMON_SET,
    "PriorityClass": {"kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 3, "globalDefault": False},
}


def _paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in an object except its kind."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found = []
    for key, item in items:
        if (*path, key) != ("kind",):
            found += [(*path, key), *_paths(item, (*path, key))]
    return found


@st.composite
def _damaged(draw: st.DrawFn) -> Object:
    """An object in which parts are missing, null or of another type."""
    kind = draw(st.sampled_from(sorted(EVERYTHING)))
    obj: Object = copy.deepcopy(EVERYTHING[kind])
    paths = draw(st.lists(st.sampled_from(_paths(obj)), max_size=6))
    for path in paths:
        damage = draw(st.sampled_from(["drop", None, 0, -1.5, "", "x", [], {}, True, [None], {"x": None}, 10**40]))
        _spoil(obj, path, damage)
    return obj


def _spoil(obj: Any, path: tuple[Any, ...], damage: object) -> None:
    for step in path[:-1]:
        try:
            obj = obj[step]
        except (KeyError, IndexError, TypeError):
            return
    try:
        if damage == "drop":
            del obj[path[-1]]
        else:
            obj[path[-1]] = damage
    except (KeyError, IndexError, TypeError):
        return


@given(st.lists(_damaged(), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_object_never_prevents_the_others_from_being_read(objects: list[Object]) -> None:
    """A damaged object is read or quarantined under its name, and the valid node is always read."""
    by_kind: dict[str, list[Any]] = {kind: [] for kind in DECODERS}
    for obj in [*objects, node("sound")]:
        decoder = DECODERS[obj["kind"]]
        decoded = decoder.from_dict(obj)
        live = decoder.from_bytes(json.dumps(obj).encode())
        assert isinstance(live, Quarantined) == isinstance(decoded, Quarantined)
        if isinstance(decoded, Quarantined):
            assert obj["kind"] in str(decoded)
        else:
            by_kind[obj["kind"]].append(decoded)
    found = Translator().snapshot(
        now_s=0.0,
        objects=ClusterObjects(
            nodes=by_kind["Node"],
            pods=by_kind["Pod"],
            jobs=by_kind["TrainingJob"],
            daemonsets=by_kind["DaemonSet"],
            priority_classes=by_kind["PriorityClass"],
        ),
    )
    assert "sound" in {n.name for n in found.nodes}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_decoding_any_bytes_raises_no_error(raw: bytes) -> None:
    for decoder in DECODERS.values():
        decoder.from_bytes(raw)
