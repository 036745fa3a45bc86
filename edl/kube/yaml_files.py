"""Reading files that people write: their text, their YAML, and the position of an error.

A key that appears twice in a mapping is an error; YAML would silently use the last one. Messages name the file and
the line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from edl.errors import ConfigError

MERGE = "tag:yaml.org,2002:merge"
MAX_KEYS = 10_000
"""The most keys of one mapping; the largest object that edl was made for has a hundredth of it."""

_MAX_QUOTED = 80


class TooManyKeysError(ValueError):
    """A mapping has more keys than edl reads.

    Attributes:
        line: the line of the first key that is too many, from 1; None if it is unknown.
    """

    def __init__(self, line: int | None = None) -> None:
        super().__init__(f"one mapping has more than {MAX_KEYS} keys, which is the limit; remove some")
        self.line = line


class DuplicateKeyError(ValueError):
    """A key appears twice in a mapping.

    Attributes:
        line: the line of the second appearance, from 1; None if it is unknown.
    """

    def __init__(self, key: str, line: int | None = None) -> None:
        super().__init__(f"{key[:_MAX_QUOTED]!r} appears twice; keep one of them")
        self.line = line


def read_text(name: str, read: Callable[[], bytes]) -> str:
    """Return the text of a file.

    Args:
        name: the name of the file, for messages.
        read: returns its bytes.

    Raises:
        ConfigError: the file cannot be read, or is not UTF-8.
    """
    try:
        return read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"{name} cannot be read: {reason}; give the name of a readable file") from error


def bytes_of(path: str | Path) -> Callable[[], bytes]:
    """Return a function that reads the file; an impossible name fails only when it is called."""
    return lambda: Path(path).read_bytes()


@contextmanager
def errors_with_position(name: str) -> Iterator[None]:
    """Turn the errors of reading YAML into a ConfigError that names the file and the position."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{name}{where}: not YAML: {error.problem or error.context}") from error
    except (DuplicateKeyError, TooManyKeysError) as error:
        raise ConfigError(f"{name}{f', line {error.line}' if error.line else ''}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split())}") from error


def reject_duplicate_keys(mapping: yaml.MappingNode) -> None:
    """Check that every key of a mapping is unique; the merge key `<<` may appear several times.

    Raises:
        DuplicateKeyError: a key appears twice.
    """
    seen: set[Any] = set()
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
            if key.value in seen:
                raise DuplicateKeyError(key.value, key.start_mark.line + 1)
            seen.add(key.value)


def dump_yaml(value: dict[str, Any]) -> str:
    """Format an object as YAML, with sorted keys, as kubectl prints it."""
    text: str = yaml.safe_dump(value, default_flow_style=False, allow_unicode=True)
    return text


def object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build the object of a JSON decoder from its pairs.

    Raises:
        DuplicateKeyError: a key appears twice.
        TooManyKeysError: there are more than `MAX_KEYS`.
    """
    if len(pairs) > MAX_KEYS:
        raise TooManyKeysError
    built = dict(pairs)
    if len(built) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        raise DuplicateKeyError(next(key for key, times in keys.items() if times > 1))
    return built
