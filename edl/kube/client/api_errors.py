"""The API server's error responses and failed connections, as the errors of edl. Only this module translates them.

A caller decides by the type: after a TemporaryError the same request may succeed later, after a ConflictError the
object must be read again, and after a RefusedError the same request fails again. The message names the request and
repeats the server's own message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import msgspec

from edl.errors import ConfigError, ConflictError, EdlError, PermanentError, TemporaryError
from edl.kube.bounds.json_depth import UNREADABLE
from edl.kube.client.responses import ApiStatus

_WEBHOOK_DOWN = "failed calling webhook"
"""An admission webhook that is down concerns only the objects it checks; the API server itself is healthy."""

LONGEST_RETRY_AFTER_S = 300.0
"""The longest pause that a server may ask for: as long as that after many refusals."""


class RefusedError(PermanentError):
    """The API server rejected the request, and would reject it again.

    Attributes:
        code: the HTTP status.
        reason: the PascalCase reason of the server's Status (Forbidden, Invalid, NotFound...); may be empty.
        answer: the server's message with status and reason, without the request; empty if edl itself refuses.
    """

    def __init__(self, message: str, *, code: int, reason: str, answer: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.answer = answer


class NotFoundError(RefusedError):
    """The object or the resource does not exist."""


class AlreadyExistsError(ConflictError):
    """An object of that name already exists."""


class UntrustedError(PermanentError):
    """The certificate of the server is not trusted; the certificate authority may have been replaced."""


class GoneError(TemporaryError):
    """The resourceVersion or the continue token is too old: list again."""


def error_of(code: int, raw: bytes, what: str, retry_after: str | None = None) -> EdlError:
    """Return the error for an unsuccessful response or an ERROR event of a watch.

    Args:
        code: the HTTP status.
        raw: the body: a metav1.Status, or any text if a proxy responds.
        what: the request, for the message.
        retry_after: the value of the Retry-After header.
    """
    try:
        status = msgspec.json.decode(raw, type=ApiStatus)
    except UNREADABLE:
        status = ApiStatus(message=raw[:200].decode(errors="replace").strip() or None)
    reason = status.reason or ""
    answer = f"{status.message or 'the server gives no reason'} ({code}{' ' + reason if reason else ''})"
    message = f"{what}: {answer}"
    if code == 410:
        return GoneError(message)
    if code == 500 and _WEBHOOK_DOWN in message:
        return RefusedError(message, code=code, reason=reason or "InternalError", answer=answer)
    if code in {408, 429} or code >= 500:
        return TemporaryError(message, retry_after_s=_retry_after_s(retry_after, status))
    if code == 409:
        return AlreadyExistsError(message) if reason == "AlreadyExists" else ConflictError(message)
    return (NotFoundError if code == 404 else RefusedError)(message, code=code, reason=reason, answer=answer)


def _retry_after_s(header: str | None, status: ApiStatus) -> float | None:
    """How long the server asks edl to wait, within bounds: a webhook or a proxy may ask for days, and be repaired."""
    if header and header.isdecimal():
        return min(float(header), LONGEST_RETRY_AFTER_S)
    asked = status.details and status.details.retry_after_seconds
    return float(max(0, min(asked, LONGEST_RETRY_AFTER_S))) if asked else None  # it may be larger than a float


@contextmanager
def translated(what: str, host: str) -> Iterator[None]:
    """Translate the errors that aiohttp and the operating system raise in the block.

    Args:
        what: the request, for the message.
        host: the server, for the message.
    """
    try:
        yield
    except EdlError:
        raise
    except TimeoutError as error:
        raise TemporaryError(f"{what}: {host} did not answer in time") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise UntrustedError(
            f"{what}: the certificate of {host} is not trusted: {one_line(error)}; "
            "correct the certificate authority in the kubeconfig"
        ) from error
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"{what}: {host} is not a valid URL; write https://HOST:PORT") from error
    except (aiohttp.ClientError, OSError) as error:
        raise TemporaryError(f"{what}: {host} cannot be reached: {_reason(error)}") from error
    except RuntimeError as error:
        if "closed" not in str(error).lower():
            raise
        raise TemporaryError(f"{what}: edl has closed its connection to {host} because it is stopping") from error


def _reason(error: Exception) -> str:
    """Why a connection failed, without the objects that aiohttp adds to its message."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    return one_line(cause)


def one_line(error: object) -> str:
    """Return the message of an error on one line, or its type if it has no message."""
    return " ".join(str(error).split()) or type(error).__name__
