"""Queues: what the API server refuses, the controller refuses too, in the same words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from edl.api.crd import render_queue_crd
from edl.api.queues import QueueSpec, parse_queue
from edl.errors import ConfigError
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.queues import QUEUES, QueueReader
from edl.model.queues import Queue, Reclaim
from tests.worlds.hostile.queues import INVALID, queue

Object = dict[str, Any]
(VERSION,) = render_queue_crd()["spec"]["versions"]
SCHEMA: Object = VERSION["schema"]["openAPIV3Schema"]["properties"]


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_queue_is_refused_with_the_value_and_the_remedy(case: str) -> None:
    body, message = INVALID[case]
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_queue(body)


@pytest.mark.parametrize("rule", QueueSpec.rules, ids=lambda rule: rule.general_message)
def test_each_rule_is_in_the_crd_and_some_case_breaks_it(rule: Any) -> None:
    spec = SCHEMA["spec"]
    places = [spec, *(spec["properties"][name] for name in ("nominalQuota", "borrowingLimit"))]
    in_crd = [one for place in places for one in place.get("x-kubernetes-validations", [])]
    assert {"rule": rule.cel, "message": rule.general_message} in in_crd
    words = " *.*? *".join(re.escape(part.strip()) for part in re.split(r"\{\w+\}", rule.message))
    assert any(re.search(words, message) for message in map(_refusal, INVALID))


def _refusal(case: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_queue(INVALID[case][0])
    return str(caught.value)


def test_a_queue_has_columns_a_status_and_no_namespace() -> None:
    spec = render_queue_crd()["spec"]
    assert (spec["scope"], spec["names"]["plural"], VERSION["subresources"]) == ("Cluster", "queues", {"status": {}})
    columns = [column["name"].upper() for column in VERSION["additionalPrinterColumns"] if not column.get("priority")]
    assert columns == ["WEIGHT", "USED", "BORROWED", "SHARE", "RUNNING", "PENDING", "AGE"]
    for column in VERSION["additionalPrinterColumns"]:
        _, section, *steps = column["jsonPath"].split(".")
        place = SCHEMA[section]
        for step in steps if section != "metadata" else ():
            place = place["properties"][step]


def test_a_queue_becomes_amounts_in_base_units() -> None:
    body = queue(
        nominalQuota={"cpu": "1500m", "memory": "2Gi", "alpha.kubernetes.io/nvidia-gpu": 4},
        borrowingLimit={"cpu": 2},
        weight=3,
        reclaim="Never",
        cohort="research",
    )
    body["metadata"] |= {"uid": "u1", "generation": 7}
    body["status"] = {"used": "whatever somebody wrote"}
    left_out: list[Quarantined] = []
    source = QUEUES.from_dict(body)
    assert not isinstance(source, Quarantined)
    assert QueueReader().read([source], (), left_out) == (
        Queue(
            "blue",
            (("cpu", 1500), ("memory", 2 * 1024**3), ("nvidia.com/gpu", 4)),
            3.0,
            (("cpu", 2000),),
            Reclaim.NEVER,
            "research",
            "u1",
            7,
        ),
    )
    assert not left_out


def read(reader: QueueReader, *bodies: Object) -> tuple[tuple[Queue, ...], list[Quarantined]]:
    left_out: list[Quarantined] = []
    found: list[Any] = [QUEUES.from_dict(body) for body in bodies]
    return reader.read(found, (), left_out), left_out


def test_an_invalid_queue_of_which_nothing_is_known_has_no_limits_and_a_problem() -> None:
    (blue, green), left_out = read(
        QueueReader(), queue("green", nominalQuota={"cpu": 1}), queue("blue", nominalQuota={"cups": 1})
    )
    assert (blue.name, blue.nominal, blue.is_unknown, green.is_unknown) == ("blue", (), True, False)
    assert "unknown resource cups" in blue.problem
    (reported,) = left_out
    assert str(reported).startswith("Queue blue is left out: nominalQ")
    assert reported.problem.endswith("; its jobs get no more than they have")


def test_a_queue_that_becomes_invalid_keeps_its_last_valid_limits() -> None:
    reader = QueueReader()
    ((valid,), _) = read(reader, queue("blue", nominalQuota={"cpu": 2}, weight=3))
    for _ in range(2):
        ((kept,), (reported,)) = read(reader, queue("blue", nominalQuota={"cpu": -3}))
        assert kept == replace(valid, problem=kept.problem)
        assert "-3 of cpu is negative" in kept.problem
        assert reported.problem.endswith("; its last valid limits count")
    ((mended,), none) = read(reader, queue("blue", nominalQuota={"cpu": 1}))
    assert (mended.nominal, mended.problem, none) == ((("cpu", 1000),), "", [])


def test_another_object_of_the_same_name_has_no_earlier_limits() -> None:
    reader = QueueReader()
    first, second = queue("blue", nominalQuota={"cpu": 2}), queue("blue", nominalQuota={"cpu": -3})
    first["metadata"]["uid"], second["metadata"]["uid"] = "u1", "u2"
    read(reader, first)
    assert read(reader, second)[0][0].is_unknown
    read(reader)
    assert read(reader, {**second, "metadata": first["metadata"]})[0][0].is_unknown


def test_a_queue_that_cannot_be_decoded_keeps_its_last_valid_limits() -> None:
    reader = QueueReader()
    read(reader, queue("blue", nominalQuota={"cpu": 2}))
    (kept,) = reader.read([], [Quarantined("Queue", "", "blue", "", "Expected `int`")], [])
    assert (kept.nominal, kept.problem) == ((("cpu", 2000),), "Expected `int`")
