"""What scopes ask of a pod or of a template is read once, until the object changes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from edl.kube.translate.shapes import qos_of
from edl.kube.translate.snapshot import Translator
from edl.model.names import JobKey
from tests.kube.translate.quotas.test_resource_quotas import quota
from tests.worlds import raw_objects
from tests.worlds.raw_objects import Object, batch_job, job, pod, take

HARD = {"pods": "50"}
SCOPED = [quota(name, spec={"hard": HARD, "scopes": [name]}) for name in ("NotBestEffort", "NotTerminating")]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The specs that are read for scopes; equal objects of two snapshots are one, as a watch keeps them."""
    found: list[Any] = []
    decoded, known = raw_objects.decoded, dict[str, Any]()

    def once(obj: Object) -> Any:
        return known.setdefault(repr(obj), decoded(obj))

    def counted(spec: Any) -> Any:
        found.append(spec)
        return qos_of(spec)

    monkeypatch.setattr(raw_objects, "decoded", once)
    monkeypatch.setattr("edl.kube.translate.quotas.scopes.qos_of", counted)
    return found


def test_pods_and_templates_are_read_once_for_all_quotas_and_snapshots(reads: list[Any]) -> None:
    translator, scene = Translator(), [batch_job(), pod("web-0"), pod("web-1"), *SCOPED]
    first = take(*scene, translator=translator).resource_quotas
    assert (len(first), len(reads)) == (2, 3)
    assert take(*scene, now_s=1001.0, translator=translator).resource_quotas == first
    assert len(reads) == 3


def test_what_changes_is_read_again_and_what_is_gone_is_forgotten(reads: list[Any]) -> None:
    translator, web = Translator(), pod("web-0")
    ends = deepcopy(web)
    ends["spec"]["activeDeadlineSeconds"] = 60
    counted = []
    for pods in ([web], [ends], [], [web]):
        found = take(batch_job(), *pods, *SCOPED, translator=translator).resource_quotas
        counted.append({one.name: dict(one.others).get("pods", 0) for one in found}["NotTerminating"])
    assert counted == [1, 0, 0, 1]
    assert len(reads) == 4  # the template once


def test_another_default_class_is_that_of_the_templates_that_name_none(reads: list[Any]) -> None:
    translator = Translator()
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["usual"]}]}
    scene = [job(), batch_job(), quota(spec={"hard": HARD, "scopeSelector": selector})]
    usual = {"kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 0, "globalDefault": True}
    found = [take(*scene, *more, translator=translator).resource_quotas for more in ([], [usual], [])]
    assert [[one.exempt for one in quotas] for quotas in found] == [[], [(JobKey("ads", "ctr"),)], []]
    assert len(reads) == 3


def test_a_quota_counts_the_jobs_of_its_namespace_alone() -> None:
    others = [job() for _ in range(3)]
    for one, namespace in zip(others, ("ad", "ads-2", "adsz"), strict=True):
        one["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}"}
        one["spec"]["trainer"]["resources"] = {}
    (found,) = take(job(), *others, SCOPED[0]).resource_quotas
    assert found.exempt == ()
