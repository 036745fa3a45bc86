"""The fields that a manager owns, of objects that the present schema describes and of others."""

from __future__ import annotations

import pytest

from edl.sandbox.apiserver.patches.fields import fields_of

ITEM = {"type": "object", "properties": {"name": {"type": "string"}}}
KEYED = {
    "type": "array",
    "items": ITEM,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"env": KEYED}}}}


def test_an_item_of_a_keyed_list_is_a_field_by_its_key() -> None:
    found = fields_of(SCHEMA, {"spec": {"env": [{"name": "A"}]}}, every_container=True)
    assert ("f:spec", "f:env", 'k:{"name":"A"}', "f:name") in found


@pytest.mark.parametrize("wrong", [["A"], [["A"]], [None], [{"name": "A"}, 1]])
def test_a_keyed_list_that_was_stored_under_another_schema_is_one_value(wrong: list[object]) -> None:
    found = fields_of(SCHEMA, {"spec": {"env": wrong}}, every_container=True)
    assert found[("f:spec", "f:env")] == wrong
