"""The file of `--queues`: what the jobs of each queue may ask for together.

A mapping of queues to resources to quantities, in YAML or JSON. Every value is read as the text that stands there, so
that `0.1` is a tenth and no binary fraction, and a name that stands twice is an error and not a silent choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from edl.adapters.shapes import OLD_GPU
from edl.core.asks import CPU, EPHEMERAL_STORAGE, GPU, MEMORY, PODS
from edl.core.plan import Quota
from edl.core.quantity import parse_quantity
from edl.errors import ConfigError

_QUEUE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_NAME = 63
_DEVICE = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?/[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?")
_PLAIN = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_EXAMPLE = "write QUEUE: {RESOURCE: QUANTITY}, such as blue: {cpu: 64, memory: 256Gi, nvidia.com/gpu: 8}"


def read_queues(path: Path) -> tuple[Quota, ...]:
    """Read the quotas.

    Returns:
        One for each queue of the file, sorted by name.

    Raises:
        ConfigError: the file cannot be read, or something in it makes no sense; the message says where.
    """
    name = f"--queues {path}"
    quotas = []
    for queue, at, value in _entries(_compose(_read(path, name), name), name, "queues"):
        if not _QUEUE.fullmatch(queue) or len(queue) > _LONGEST_NAME:
            raise ConfigError(
                f"{at}: queue {queue[:80]!r} is no name of a queue; use at most {_LONGEST_NAME} lowercase letters,"
                " digits, hyphens and dots"
            )
        quotas.append(Quota(queue, tuple(sorted(_amounts(value, name, queue)))))
    return tuple(sorted(quotas, key=lambda quota: quota.queue))


def _read(path: Path, name: str) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"{name} cannot be read: {reason}; give the name of a readable file") from error


def _compose(text: str, name: str) -> yaml.Node:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{name}{where}: not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split())}") from error
    if root is None:
        raise ConfigError(f"{name} is empty; {_EXAMPLE}, or leave the flag out")
    return root


def _amounts(node: yaml.Node, name: str, queue: str) -> Iterator[tuple[str, int]]:
    seen = set()
    for resource, at, value in _entries(node, name, f"queue {queue}"):
        known = GPU if resource == OLD_GPU else resource
        if known not in _PLAIN and not known.startswith("hugepages-") and not _DEVICE.fullmatch(known):
            raise ConfigError(
                f"{at}: queue {queue}: resource {resource[:80]!r} is unknown; use {', '.join(_PLAIN)}, or the full"
                f" name of a device such as {GPU}"
            )
        if known in seen:
            raise ConfigError(f"{at}: queue {queue}: {known} is named twice; keep one of them")
        seen.add(known)
        if not isinstance(value, yaml.ScalarNode):
            raise ConfigError(f"{at}: queue {queue}: {known} is no quantity; write a number such as 64 or 256Gi")
        try:
            yield known, parse_quantity(value.value, known)
        except ConfigError as error:
            raise ConfigError(f"{at}: queue {queue}: {error}") from error


def _entries(node: yaml.Node, name: str, what: str) -> Iterator[tuple[str, str, yaml.Node]]:
    """Each key of a mapping, where it stands, and its value; a key that stands twice is refused."""
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{_place(name, node)}: {what}: expected a mapping; {_EXAMPLE}")
    seen = set()
    for key, value in node.value:
        at = _place(name, key)
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{at}: {what}: a name is expected here; {_EXAMPLE}")
        if key.value in seen:
            raise ConfigError(f"{at}: {what}: {key.value[:80]!r} stands twice; keep one of them")
        seen.add(key.value)
        yield key.value, at, value


def _place(name: str, node: yaml.Node) -> str:
    return f"{name}, line {node.start_mark.line + 1}"
