"""YAML as Kubernetes reads it: a value is a boolean, null or number only by the rules of the JSON schema.

The parser is libyaml's if PyYAML was built with it. The composer is always Python's, because on deep nesting that of
libyaml crashes the interpreter and Python's raises a RecursionError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError, SafeConstructor

from edl.kube.yaml_files import MAX_KEYS, MERGE, TooManyKeysError, reject_duplicate_keys

_RULES = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?", "-+0123456789"),
    ("merge", r"<<", "<"),
)


MAX_MERGED = 10_000
"""The most keys that `<<` may add to the mappings of a document: a few hundred bytes can ask for billions."""


class _UniqueKeys(Composer):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - PyYAML's stubs name it wrongly
        mapping: yaml.MappingNode = super().compose_mapping_node(anchor)
        reject_duplicate_keys(mapping)
        return mapping

    def compose_node(self: Any, parent: Any, index: Any) -> Any:  # noqa: ANN401 - the parser is another base
        if index is None and isinstance(parent, yaml.MappingNode) and len(parent.value) >= MAX_KEYS:
            raise TooManyKeysError(self.peek_event().start_mark.line + 1)
        return super().compose_node(parent, index)


class _BoundedMerges(SafeConstructor):
    """Part of a loader: counts what `<<` adds before it is added."""

    _merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag != MERGE:
                continue
            for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(one, yaml.MappingNode):
                    continue  # the constructor names the mistake
                self.flatten_mapping(one)
                self._merged += len(one.value)
                if self._merged > MAX_MERGED:
                    problem = f"`<<` merges more than {MAX_MERGED} keys; write them out, or merge fewer"
                    raise ConstructorError(None, None, problem, key.start_mark)
        super().flatten_mapping(node)


def loader_on(parser: Any) -> Any:  # noqa: ANN401 - a class whose bases depend on what PyYAML was built with
    """The loader for `yaml.load_all`.

    Args:
        parser: `yaml.CSafeLoader`, or `yaml.SafeLoader`, which is slower.
    """

    def __init__(self: Any, stream: str) -> None:  # noqa: ANN401, N807 - it becomes the loader's
        parser.__init__(self, stream)
        Composer.__init__(self)

    loader: Any = type(
        "KubernetesLoader",
        (_UniqueKeys, _BoundedMerges, parser),
        {"__init__": __init__, "yaml_implicit_resolvers": {}},
    )
    for tag, pattern, first in _RULES:
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))
    return loader


_LOADER = loader_on(getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def load_documents(text: str) -> Iterator[Any]:
    """Yield each document of a YAML text.

    Raises:
        yaml.YAMLError: it is not YAML.
        DuplicateKeyError: a mapping has a key twice.
        TooManyKeysError: a mapping has too many keys.
        RecursionError: it is nested too deeply.
    """
    yield from yaml.load_all(text, Loader=_LOADER)
