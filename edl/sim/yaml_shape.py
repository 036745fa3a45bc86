"""The shape of a YAML document, checked before anything is made of it: how deep it is, and how much its aliases say.

Aliases may stand inside their own anchor, and a few lines of them may stand for more values than a computer can hold.
"""

from __future__ import annotations

import yaml

from edl.errors import ConfigError
from edl.kube.yaml_files import reject_duplicate_keys

DEEPEST = 30
"""Levels within levels; a scenario has ten."""

MOST_VALUES = 5_000_000
"""Values of a scenario with all aliases written out."""

Sizes = dict[int, int]


def check_shape(name: str, tree: yaml.Node) -> None:
    """Refuse a document that is too deep or too large, and keys that appear twice.

    Raises:
        ConfigError: it is too deep or too large, or an alias stands inside its own anchor.
        DuplicateKeyError: a key appears twice.
    """
    _size(name, tree, {}, ())


def _size(name: str, node: yaml.Node, sizes: Sizes, around: tuple[int, ...]) -> int:
    """How many values a node is, aliases written out; each node is looked at once."""
    if id(node) in sizes:
        return sizes[id(node)]
    if isinstance(node, yaml.ScalarNode):
        return 1
    line = node.start_mark.line + 1
    if id(node) in around:
        raise ConfigError(f"{name}, line {line}: an alias stands inside its own anchor; write the value out there")
    if len(around) >= DEEPEST:
        raise ConfigError(f"{name}, line {line}: {too_deep()}")
    if isinstance(node, yaml.MappingNode):
        reject_duplicate_keys(node)
        inner = [one for pair in node.value for one in pair]
    else:
        inner = node.value if isinstance(node, yaml.SequenceNode) else []
    size = 1 + sum(_size(name, one, sizes, (*around, id(node))) for one in inner)
    if size > MOST_VALUES:
        raise ConfigError(f"{name}, line {line}: its aliases stand for more than {MOST_VALUES:,} values; use fewer")
    sizes[id(node)] = size
    return size


def too_deep() -> str:
    """Why a document is refused."""
    return f"there are more than {DEEPEST} levels within each other; a scenario has fewer, so remove brackets"


def line_that_is_too_deep(text: str) -> int:
    """The line, from 1, at which a document first has more than `DEEPEST` levels; for one that cannot be read."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                return event.start_mark.line + 1 if event.start_mark else 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return 1
