"""Answers of kube-scheduler about pods with rules, judged by these rules."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.translate.decoders import NAMESPACES, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES, Decoder
from edl.kube.translate.devices.decoders import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from edl.kube.translate.rules.facts import RuleFacts, RuleObjects, read_facts
from edl.shadow.answers import SETTLES_S
from edl.shadow.document import Predicate
from tests.shadow.objects import node, pod
from tests.shadow.test_answers import Scene
from tests.worlds.rules.device_scenes import claim, device, device_class, slice_of, uses
from tests.worlds.rules.scenes import HOSTNAME, ZONE, Object, apart, bound, near, spread, storage

REFUSED = "0/2 nodes are available: 2 node(s) {}. preemption: 0/2 nodes are available: 2 Preemption is not helpful."


def zoned() -> Scene:
    """Two nodes in zones a and b."""
    labels = [{HOSTNAME: f"n{number}", ZONE: zone} for number, zone in ((1, "a"), (2, "b"))]
    return Scene(*(node(of[HOSTNAME], metadata={"labels": of}) for of in labels))


def with_rule(rule: Object, **labels: str) -> Object:
    """What `Scene` makes a pod from."""
    return {"spec": rule, "labels": labels or {"app": "web"}}


APART = with_rule({"affinity": apart(app="web")})
NEAR = with_rule({"affinity": near(app="cache")})
SPREAD = with_rule({"topologySpreadConstraints": spread(ZONE, app="web")})


def facts(*objects: Object) -> RuleFacts:
    decoders: dict[str, Decoder[Any]] = {
        "claims": VOLUME_CLAIMS,
        "volumes": VOLUMES,
        "classes": STORAGE_CLASSES,
        "namespaces": NAMESPACES,
        "slices": RESOURCE_SLICES,
        "device_classes": DEVICE_CLASSES,
        "device_claims": RESOURCE_CLAIMS,
    }
    by_kind = {decoder.kind: name for name, decoder in decoders.items()}
    found: dict[str, Any] = {name: [] for name in decoders}
    for one in objects:
        name = by_kind[one["kind"]]
        found[name].append(decoders[name].from_dict(one))
    return read_facts(RuleObjects(**found))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (APART, "didn't match pod anti-affinity rules"),
        (with_rule({}), "didn't satisfy existing pods anti-affinity rules"),
    ],
    ids=["its own", "that of others"],
)
def test_a_refusal_that_a_rule_explains_is_agreed_with(rule: Object, message: str) -> None:
    scene = zoned()
    for name in ("n1", "n2"):
        scene.bind(f"web-{name}", "1", name, **APART)
    scene.refuse("more", "1", REFUSED.format(message), **rule)
    agreement = scene.later()
    assert (agreement.refused_agreed, agreement.share, agreement.disagreements) == (1, 1.0, [])
    assert scene.row(Predicate.BETWEEN_PODS).refused_agreed == 1


@pytest.mark.parametrize("rule", [APART, SPREAD], ids=["apart", "spread"])
def test_a_binding_that_a_rule_forbids_is_a_disagreement_about_it(rule: Object) -> None:
    scene = zoned()
    scene.bind("web-1", "1", "n1", **rule)
    scene.bind("web-2", "1", "n1", **rule)
    (found,) = scene.later().disagreements
    assert (found.pod, found.node, found.predicates) == ("ads/web-2", "n1", [Predicate.BETWEEN_PODS])
    assert scene.row(Predicate.BETWEEN_PODS).bound_disagreed == 1
    assert scene.row(Predicate.RESOURCES).bound_agreed == 2


def test_a_pod_that_others_must_be_near_makes_room_for_them_when_it_comes() -> None:
    scene = zoned()
    scene.refuse("web", "1", REFUSED.format("didn't match pod affinity rules"), **NEAR)
    scene.bind("cache", "1", "n2", labels={"app": "cache"})
    scene.bind("web", "1", "n2", **NEAR)
    agreement = scene.later()
    assert (agreement.refused_agreed, agreement.bound_agreed, agreement.disagreements) == (1, 2, [])


def test_a_pod_that_is_gone_is_avoided_no_more() -> None:
    scene = zoned()
    scene.bind("old", "1", "n1", **APART)
    scene.answers.note(pod("old", on="n1", **APART), None)
    scene.bind("new", "1", "n1", **APART)
    assert scene.later().disagreements == []


def test_the_zone_of_a_volume_is_judged() -> None:
    scene = zoned()
    volumes = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    objects = bound(storage("a"), "pv-a0")
    objects[-1]["metadata"]["namespace"] = "ads"
    found = facts(*objects)
    scene.answers.rules.facts = lambda: found
    scene.bind("db", "1", "n1", spec=volumes)
    scene.bind("other", "1", "n2", spec=volumes)
    agreement = scene.later(SETTLES_S)
    assert (agreement.bound, agreement.bound_agreed) == (2, 1)
    assert [one.predicates for one in agreement.disagreements] == [[Predicate.VOLUMES]]


def test_devices_by_claim_are_judged() -> None:
    scene = zoned()
    wants = claim("gpu")
    wants["metadata"]["namespace"] = "ads"
    found = facts(device_class(), slice_of("n1", device("gpu-0")), wants)
    scene.answers.rules.facts = lambda: found
    scene.bind("one", "1", "n1", spec=uses("gpu", shared=True))
    scene.bind("two", "1", "n2", spec=uses("gpu", shared=True))
    assert [one.predicates for one in scene.later().disagreements] == [[Predicate.CLAIMS]]


def test_answers_beyond_the_time_for_rules_are_counted_and_not_compared() -> None:
    scene, spent = zoned(), iter(range(0, 1000, 4))
    scene.answers.rules = type(scene.answers.rules)(scene.times.monotonic_s, lambda: float(next(spent)))
    scene.answers.book = type(scene.answers.book)(scene.answers.rules)
    scene.answers.book.fill((node("n1"), node("n2")), ())
    for number in range(6):
        scene.bind(f"web-{number}", "1", "n1", **APART)
    agreement = scene.answers.finish()
    assert (agreement.no_time, agreement.bound) == (4, 2)
