"""The expressions of a structural schema, on objects as the API server stores them."""

from __future__ import annotations

from typing import Any

import pytest

from edl.sandbox.apiserver.schema.rules import rule_errors
from edl.sandbox.apiserver.schema.validation import ABSENT

Object = dict[str, Any]
INTEGER: Object = {"type": "integer"}
AMOUNT: Object = {"x-kubernetes-int-or-string": True}


def schema(*rules: Object, **properties: Object) -> Object:
    return {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}


def rule(text: str, message: str = "wrong") -> Object:
    return {"rule": text, "message": message}


def refusals(kind: Object, *states: Object) -> list[str]:
    """What is said of the last state, after the one before it."""
    old = states[0] if len(states) > 1 else ABSENT
    return [str(error) for error in rule_errors(kind, states[-1], old)]


def test_a_property_that_is_no_identifier_is_escaped_and_a_key_of_a_map_is_not() -> None:
    labels: Object = {"type": "object", "additionalProperties": {"type": "string"}}
    kind = schema(
        rule("self.max__dash__instance > 1"),
        rule("self.__namespace__ == 'a' && self.under__underscores__score == 2"),
        rule("self.labels['a-b'] == 'c'"),
        **{"max-instance": INTEGER, "namespace": {"type": "string"}, "under__score": INTEGER, "labels": labels},
    )
    value = {"max-instance": 2, "namespace": "a", "under__score": 2, "labels": {"a-b": "c"}}
    assert refusals(kind, value) == []
    assert refusals(kind, {**value, "max-instance": 1}) == ["<nil>: Invalid value: wrong"]


def test_a_rule_of_a_part_says_where_it_is() -> None:
    items = {"type": "array", "items": schema(rule("self.n > 0"), n=INTEGER)}
    others = {"type": "object", "additionalProperties": schema(rule("self.n > 1"), n=INTEGER)}
    kind = schema(**{"a-list": items, "by": others})
    found = refusals(kind, {"a-list": [{"n": 1}, {"n": 0}], "by": {"x-y": {"n": 1}}})
    assert found == ["a-list[1]: Invalid value: wrong", "by.x-y: Invalid value: wrong"]


UNFIT = "invalid data, expected int, got float64 evaluating rule: wrong"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("self.n == 2", UNFIT),
        ("self.n > 1", UNFIT),
        ("self.n in [2]", UNFIT),
        ("has(self.n) && self.n == 3", UNFIT),
        ("!has(self.n) || self.n > 1", UNFIT),
        ("has(self.n)", ""),
        ("self.n > 1 || self.other == 1", ""),
        ("!has(self.n)", "wrong"),
        ("self.other == 1", ""),
    ],
)
def test_what_reads_a_fraction_in_the_place_of_an_integer_fails(text: str, found: str) -> None:
    refused = refusals(schema(rule(text), n=INTEGER, other=INTEGER), {"n": 2.0, "other": 1})
    assert [one.partition('"object": ')[2] or "wrong" for one in refused] == ([found] if found else [])


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("'cpu' in self", True),
        ("string(self['cpu']) == '1.5'", True),
        ("self.all(k, k in ['cpu', 'memory'])", False),
        ("'memory' in self", False),
        ("'gpu' in self || 'memory' in self", False),
    ],
)
def test_what_reads_a_fraction_in_the_place_of_an_amount_fails(text: str, *, is_read: bool) -> None:
    kind = {"type": "object", "additionalProperties": AMOUNT, "x-kubernetes-validations": [rule(text)]}
    why = "invalid data, expected XIntOrString value to be either a string or integer evaluating rule: wrong"
    expected = [f'<nil>: Invalid value: "object": {why}'] if is_read else []
    assert refusals(kind, {"cpu": 1.5, "memory": "1Gi"}) == expected


def test_a_whole_number_is_a_double_where_the_type_is_number() -> None:
    kind = schema(rule("self.share * 0.5 == 1.0"), share={"type": "number"})
    assert refusals(kind, {"share": 2}) == []


def test_a_transition_rule_sees_the_former_state_and_one_without_holds_for_what_changes() -> None:
    kind = schema(rule("self.n >= oldSelf.n", "shrinks"), rule("self.n < 5", "too many"), n=INTEGER)
    assert refusals(kind, {"n": 3}) == []
    assert refusals(kind, {"n": 3}, {"n": 2}) == ["<nil>: Invalid value: shrinks"]
    assert refusals(kind, {"n": 7}, {"n": 7}) == []
    assert refusals(kind, {"n": 7}, {"n": 8}) == ["<nil>: Invalid value: too many"]


def test_an_item_of_a_map_list_is_compared_with_the_one_of_its_name() -> None:
    item = schema(rule("self.n >= oldSelf.n", "shrinks"), n=INTEGER, **{"its-name": {"type": "string"}})
    kind = schema(
        items={"type": "array", "items": item, "x-kubernetes-list-map-keys": ["its-name"]},
    )
    before = {"items": [{"its-name": "a", "n": 3}, {"its-name": "b", "n": 1}]}
    after = {"items": [{"its-name": "b", "n": 2}, {"its-name": "a", "n": 2}]}
    assert refusals(kind, before, after) == ["items[1]: Invalid value: shrinks"]
