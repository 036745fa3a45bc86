"""The file of tenants: what is read, and the messages of invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.kube.tenants_file import read_tenants
from edl.model.lending import Lending
from edl.model.tenants import TenantRule, Tenants, UnknownQueues


def read(tmp_path: Path, text: str) -> Tenants:
    path = tmp_path / "tenants.yaml"
    path.write_text(text)
    return read_tenants(path)


def test_rules_are_read_and_sorted(tmp_path: Path) -> None:
    text = """
unknown-queues: refuse
namespaces:
  research: {max-priority: 100, queues: [blue, default]}
  "*": {max-priority: 0, queues: [default]}
  free: {lending: Never}
"""
    found = read(tmp_path, text)
    assert found == Tenants(
        (
            TenantRule("*", 0, ("default",)),
            TenantRule("free", lending=Lending.NEVER),
            TenantRule("research", 100, ("blue", "default")),
        ),
        UnknownQueues.REFUSE,
    )
    assert found.rule_of("research").max_priority == 100
    assert found.rule_of("other").max_priority == 0
    assert found.rule_of("free").queues is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no mapping"),
        (
            "namespaces: {a: {max-priority: high}}",
            "Expected `int | null`, got `str` - at `$.namespaces[...].max-priority`",
        ),
        ("namespaces: {a: {priority: 1}}", "Object contains unknown field `priority` - at `$.namespaces[...]`"),
        ("namespaces: {a: {lending: Some}}", "Invalid enum value 'Some' - at `$.namespaces[...].lending`"),
        ("unknown-queues: never", "Invalid enum value 'never' - at `$.unknown-queues`"),
        ("namespaces: {a: {}, a: {}}", "line 1: 'a' appears twice"),
        ("namespaces: [", "not YAML"),
    ],
)
def test_a_wrong_file_is_named_with_its_value(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"--tenants .*tenants\.yaml") as raised:
        read(tmp_path, text)
    assert message in str(raised.value)
