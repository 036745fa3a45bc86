"""The file of `--tenants`: which namespaces may use which priorities and queues.

unknown-queues: refuse        # allow (the default), default or refuse
namespaces:
  "*": {max-priority: 0, queues: [default]}
  research: {max-priority: 100, queues: [blue, default], lending: Never}
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from edl.errors import ConfigError
from edl.kube.yaml_files import bytes_of, errors_with_position, read_text, reject_duplicate_keys
from edl.model.lending import Lending
from edl.model.tenants import TenantRule, Tenants, UnknownQueues

_EXAMPLE = 'write namespaces: {"*": {max-priority: 0, queues: [default]}}'


class _Rule(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    max_priority: int | None = None
    queues: list[str] | None = None
    lending: Lending | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    unknown_queues: UnknownQueues = UnknownQueues.ALLOW
    namespaces: dict[str, _Rule] = {}


def read_tenants(path: Path) -> Tenants:
    """Read the rules.

    Raises:
        ConfigError: the file cannot be read or is not valid; the message names the value and the rule.
    """
    name = f"--tenants {path}"
    text = read_text(name, bytes_of(path))
    with errors_with_position(name):
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _reject_duplicates(root)
        body = yaml.safe_load(text)
    if not isinstance(body, dict):
        raise ConfigError(f"{name} holds no mapping; {_EXAMPLE}, or remove the flag")
    try:
        found = msgspec.convert(body, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {error}; {_EXAMPLE}") from error
    rules = (
        TenantRule(
            namespace,
            rule.max_priority,
            None if rule.queues is None else tuple(sorted(set(rule.queues))),
            rule.lending,
        )
        for namespace, rule in found.namespaces.items()
    )
    return Tenants(tuple(sorted(rules, key=lambda rule: rule.namespace)), found.unknown_queues)


def _reject_duplicates(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        reject_duplicate_keys(node)
        for _, value in node.value:
            _reject_duplicates(value)
