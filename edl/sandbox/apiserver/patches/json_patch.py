"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from edl.sandbox.apiserver.errors import ApiError, bad_request, rejected_patch

Object = dict[str, Any]


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch to a target and return the result; nothing is changed in place."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Object, operations: Any) -> Object:
    """Apply a JSON patch to a target and return the result; nothing is changed in place.

    Raises:
        ApiError: 400, it is not a JSON patch; 422, an operation does not apply.
    """
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise bad_request("json: cannot unmarshal the body into a list of JSON patch operations")
    result: Any = copy.deepcopy(target)
    for operation in operations:
        result = _apply(result, operation)
    if not isinstance(result, dict):
        raise rejected_patch()
    return result


def _apply(document: Any, operation: Object) -> Any:
    kind, path = operation.get("op"), _parts(operation.get("path"))
    match kind:
        case "test":
            if _same(_at(document, path), operation.get("value")):
                return document
            raise rejected_patch()
        case "add":
            return _add(document, path, copy.deepcopy(operation.get("value")))
        case "replace":
            _at(document, path)
            return _set(document, path, copy.deepcopy(operation.get("value")))
        case "remove":
            return _remove(document, path)
        case "move":
            source = _parts(operation.get("from"))
            value = _at(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_at(document, _parts(operation.get("from")))))
    raise bad_request(f"Unexpected kind: {kind}")


def _same(found: Any, wanted: Any) -> bool:
    return type(found) is type(wanted) and bool(found == wanted)


def _parts(path: Any) -> Sequence[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise rejected_patch()
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _at(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        document = _child(document, part)
    return document


def _child(parent: Any, part: str) -> Any:
    if isinstance(parent, dict) and part in parent:
        return parent[part]
    if isinstance(parent, list):
        return parent[_index(part, len(parent) - 1)]
    raise rejected_patch()


def _index(part: str, last: int) -> int:
    if not part.isdigit() or int(part) > last:
        raise rejected_patch()
    return int(part)


def _add(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    parent, name = _at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if name == "-" else _index(name, len(parent)), value)
    elif isinstance(parent, dict):
        parent[name] = value
    else:
        raise rejected_patch()
    return document


def _set(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    parent, name = _at(document, path[:-1]), path[-1]
    parent[int(name) if isinstance(parent, list) else name] = value
    return document


def _remove(document: Any, path: Sequence[str]) -> Any:
    if not path:
        raise rejected_patch()
    _at(document, path)
    parent, name = _at(document, path[:-1]), path[-1]
    del parent[int(name) if isinstance(parent, list) else name]
    return document


def require_object(patch: Any) -> Object:
    """Return a patch if it is a JSON object; else raise an error.

    Raises:
        ApiError: 400.
    """
    if isinstance(patch, dict):
        return patch
    error: ApiError = bad_request("couldn't get version/kind; json parse error: the patch is not an object")
    raise error
