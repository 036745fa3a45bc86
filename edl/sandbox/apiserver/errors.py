"""The error responses of a Kubernetes API server: metav1.Status with the code, reason and message of the real one.

Source: recorded from kube-apiserver v1.36.3; `tests/contract` compares them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edl.errors import EdlError

Object = dict[str, Any]


class ApiError(EdlError):
    """A request that is answered with an error Status.

    Attributes:
        code: the HTTP status.
        status: the metav1.Status.
    """

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            **({} if details is None else {"details": details}),
            "code": code,
        }


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field of an object that breaks a rule.

    Attributes:
        field: the path, such as `spec.containers[0].name`; `<nil>` for the whole object.
        reason: the reason of the Status' cause, such as `FieldValueInvalid`.
        message: such as `Invalid value: 3: must be less than 2`.
    """

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: str, detail: str = "") -> FieldError:
    """Make the error for a required field that is missing."""
    return FieldError(field, "FieldValueRequired", f"Required value{': ' + detail if detail else ''}")


def invalid_value(field: str, value: object, detail: str) -> FieldError:
    """Make the error for a value that breaks a rule."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {go_value(value)}: {detail}")


def forbidden_field(field: str, detail: str) -> FieldError:
    """Make the error for a field that must not be set or changed."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def not_supported(field: str, value: object, supported: Sequence[str]) -> FieldError:
    """Make the error for a value that is not one of the possible values."""
    words = ", ".join(f'"{word}"' for word in supported)
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {go_value(value)}: supported values: {words}"
    )


def go_value(value: object) -> str:
    """Format a value as the error messages of the real API server print it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _details(name: str, plural: str, group: str) -> Object:
    return {key: value for key, value in {"name": name, "group": group, "kind": plural}.items() if value}


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> ApiError:
    """Make the error 404: the object does not exist."""
    message = f'{_qualified(plural, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(name, plural, group))


def no_such_path() -> ApiError:
    """Make the error 404: the resource or subresource does not exist."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, group: str, name: str) -> ApiError:
    """Make the error 409: an object of that name exists."""
    message = f'{_qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(name, plural, group))


def conflict(plural: str, group: str, name: str, why: str = "") -> ApiError:
    """Make the error 409: the object has changed, or a precondition does not hold."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {_qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(name, plural, group))


def bad_request(message: str) -> ApiError:
    """Make the error 400: the request cannot be read."""
    return ApiError(400, "BadRequest", message)


def method_not_allowed() -> ApiError:
    """Make the error 405: the resource has no such verb."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def rejected_patch() -> ApiError:
    """Make the error 422: a JSON patch does not apply."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def unsupported_media() -> ApiError:
    """Make the error 415: the body has a content type that the resource does not take."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def not_acceptable(offered: str) -> ApiError:
    """Make the error 406: the client accepts none of the server's forms."""
    message = f"406: Not Acceptable\n\nAvailable representations: {offered}"
    return ApiError(406, "NotAcceptable", message, {})


def unauthorized() -> ApiError:
    """Make the error 401: there is no valid token."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    """Make the error 403: admission or authorization refuses the request."""
    resource = _qualified(plural, group)
    head = f'{resource} "{name}" is forbidden' if name else f"{resource} is forbidden"
    return ApiError(403, "Forbidden", f"{head}: {why}", _details(name, plural, group))


def invalid(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """Make the error 422: rules refuse the object.

    Args:
        kind: the kind of the object.
        group: the group of the kind.
        name: the name of the object.
        errors: what is refused; at least one.
    """
    texts = list(dict.fromkeys(str(error) for error in errors))
    shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    details = {**_details(name, kind, group), "causes": causes}
    return ApiError(422, "Invalid", f'{_qualified(kind, group)} "{name}" is invalid: {shown}', details)


def expired(message: str) -> ApiError:
    """Make the error 410: the version or the token of the next page is too old."""
    return ApiError(410, "Expired", message)


def too_large_version(wanted: int, current: int) -> ApiError:
    """Make the error 504: the server has not seen this resourceVersion yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def too_many(message: str, retry_after_s: int = 1, cause: Object | None = None) -> ApiError:
    """Make the error 429: try again later."""
    details = {"retryAfterSeconds": retry_after_s} if cause is None else {"causes": [cause]}
    return ApiError(429, "TooManyRequests", message, details)


def internal(message: str) -> ApiError:
    """Make the error 500: the server failed."""
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )
