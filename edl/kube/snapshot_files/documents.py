"""JSON and YAML files as Kubernetes objects: documents and Lists, one object after the other, with its position.

A file that cannot be read is an error with the file and the position. YAML is read as Kubernetes reads it: dates stay
text and `yes` is not a boolean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from edl.errors import ConfigError
from edl.kube.snapshot_files.snapshot_yaml import load_documents
from edl.kube.yaml_files import DuplicateKeyError, TooManyKeysError, errors_with_position, object_with_unique_keys


def read_documents(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the documents of a file with their positions; JSON if the file begins like JSON, else YAML."""
    start = text.lstrip()[:1]
    if start not in {"{", "["} or name.endswith((".yaml", ".yml")):
        yield from _yaml_documents(text, name)
        return
    try:
        documents = list(_json_documents(text, name))
    except ConfigError:
        try:
            documents = list(_yaml_documents(text, name))
        except ConfigError:
            documents = []
        if name.endswith(".json") or not documents:
            raise
    yield from documents


def _json_documents(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield one JSON value after the other, as several kubectl commands print them into one pipe."""
    decoder = json.JSONDecoder(parse_constant=_reject_constant, object_pairs_hook=object_with_unique_keys)
    at, number = 0, 1
    while (at := _skip_space(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{name}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
        except (DuplicateKeyError, TooManyKeysError) as error:
            raise ConfigError(f"{name}, document {number}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{name}, document {number}: not JSON: {error}") from error
        yield _place(name, number), value
        number += 1


def _yaml_documents(text: str, name: str) -> Iterator[tuple[str, Any]]:
    with errors_with_position(name):
        for number, value in enumerate(load_documents(text), 1):
            if value is not None:
                yield _place(name, number), value


def list_objects(documents: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the single objects and those of Lists; an item of a typed list inherits its kind."""
    waiting = list(reversed(documents))
    while waiting:
        place, body = waiting.pop()
        if not isinstance(body, dict):
            raise ConfigError(
                f"{place}: {quoted(body)} is not a Kubernetes object; write apiVersion, kind and metadata"
            )
        version, kind = body.get("apiVersion"), body.get("kind")
        for key, value in (("apiVersion", version), ("kind", kind)):
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{place}: an object{_named(body)} has no {key}; add it, as kubectl prints it")
        if isinstance(kind, str) and kind.endswith("List") and "items" in body:
            waiting += reversed(list(_items(place, body, kind)))
        else:
            yield place, body


def _items(place: str, body: dict[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    items = body["items"] if body["items"] is not None else []
    if not isinstance(items, list):
        raise ConfigError(f"{place}: the items of a {kind} are {quoted(items)}; write a list of objects")
    inherited = {"apiVersion": body["apiVersion"], "kind": kind.removesuffix("List")} if kind != "List" else {}
    for number, item in enumerate(items, 1):
        yield f"{place}, item {number}", {**inherited, **item} if isinstance(item, dict) else item


def _place(name: str, number: int) -> str:
    return name if number == 1 else f"{name}, document {number}"


def _named(body: dict[str, Any]) -> str:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = body.get("kind")
    known = f"{kind} {name}" if isinstance(kind, str) and kind else name
    return f" ({known})" if isinstance(name, str) else ""


def quoted(value: object) -> str:
    """The beginning of a value in quotes, for a message."""
    return f"{str(value)[:40]!r}"


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
