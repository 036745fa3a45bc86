"""Files that people write: their text, their YAML, and where in them something is wrong.

A name that stands twice in a mapping is an error and not a silent choice of the last. Messages name the file and the
line, and never show a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from edl.errors import ConfigError

_MERGE = "tag:yaml.org,2002:merge"
_SHOWN = 80


class DuplicateKeyError(ValueError):
    """A name stands twice in a mapping.

    Attributes:
        line: where it stands the second time, from 1; None where the reader does not know.
    """

    def __init__(self, name: str, line: int | None = None) -> None:
        super().__init__(f"{name[:_SHOWN]!r} stands twice; keep one of them")
        self.line = line


def read_text(name: str, read: Callable[[], bytes]) -> str:
    """The text of a file.

    Args:
        name: what to call it.
        read: gives its bytes.

    Raises:
        ConfigError: it cannot be read, or is no UTF-8.
    """
    try:
        return read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"{name} cannot be read: {reason}; give the name of a readable file") from error


def bytes_of(path: str | Path) -> Callable[[], bytes]:
    """Reads a file when it is called; a name that no file can have fails then too."""
    return lambda: Path(path).read_bytes()


@contextmanager
def errors_with_position(name: str) -> Iterator[None]:
    """What reading YAML raises, as an error that names the file and the place."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{name}{where}: not YAML: {error.problem or error.context}") from error
    except DuplicateKeyError as error:
        raise ConfigError(f"{name}{f', line {error.line}' if error.line else ''}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split())}") from error


def reject_duplicate_keys(mapping: yaml.MappingNode) -> None:
    """Refuse a name that stands twice; `<<`, which merges another mapping, is no name.

    Raises:
        TwiceError: one does.
    """
    seen: set[Any] = set()
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if key.value in seen:
                raise DuplicateKeyError(key.value, key.start_mark.line + 1)
            seen.add(key.value)


def object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs, for a decoder of JSON.

    Raises:
        TwiceError: a name stands twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise DuplicateKeyError(next(name for name in names if names.count(name) > 1))
    return found
