"""How the API server says no, and how a connection fails, as the errors of edl: translated here and nowhere else.

Who calls decides by the type alone: TemporaryError means that the same call may succeed later, ConflictError that the
object must be observed again, RefusedError that asking again is useless. The message names the request and repeats
the server's own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import msgspec

from edl.errors import ConfigError, ConflictError, EdlError, PermanentError, TemporaryError
from edl.kube.translate.decoders import UNREADABLE
from edl.kube.translate.objects import ApiStatus

_WEBHOOK_DOWN = "failed calling webhook"
"""An admission webhook that cannot be reached concerns the objects it is asked about; the server itself is well."""


class RefusedError(PermanentError):
    """The API server refused, and would refuse again.

    Attributes:
        code: HTTP status.
        reason: PascalCase reason of the server's Status (Forbidden, Invalid, NotFound...); may be empty.
    """

    def __init__(self, message: str, *, code: int, reason: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class NotFoundError(RefusedError):
    """There is no such object, or no such resource."""


class AlreadyExistsError(ConflictError):
    """An object of that name exists already."""


class GoneError(TemporaryError):
    """The resourceVersion or the continue token is too old: list again."""


def error_of(code: int, raw: bytes, what: str, retry_after: str | None = None) -> EdlError:
    """The error for an answer, or a watch event, that is a refusal.

    Args:
        code: HTTP status.
        raw: body; a metav1.Status, or whatever a proxy says.
        what: the request, for the message.
        retry_after: the header of that name.
    """
    try:
        status = msgspec.json.decode(raw, type=ApiStatus)
    except UNREADABLE:
        status = ApiStatus(message=raw[:200].decode(errors="replace").strip() or None)
    reason = status.reason or ""
    message = f"{what}: {status.message or 'refused without a message'} ({code}{' ' + reason if reason else ''})"
    if code == 410:
        return GoneError(message)
    if code == 500 and _WEBHOOK_DOWN in message:
        return RefusedError(message, code=code, reason=reason or "InternalError")
    if code in {408, 429} or code >= 500:
        return TemporaryError(message, retry_after_s=_retry_after_s(retry_after, status))
    if code == 409:
        return AlreadyExistsError(message) if reason == "AlreadyExists" else ConflictError(message)
    return (NotFoundError if code == 404 else RefusedError)(message, code=code, reason=reason)


def _retry_after_s(header: str | None, status: ApiStatus) -> float | None:
    if header and header.isdigit():
        return float(header)
    return (
        float(status.details.retry_after_seconds) if status.details and status.details.retry_after_seconds else None
    )


@contextmanager
def translated(what: str, host: str) -> Iterator[None]:
    """Translate the errors of aiohttp and of the system, once."""
    try:
        yield
    except EdlError:
        raise
    except TimeoutError as error:
        raise TemporaryError(f"{what}: {host} did not answer in time") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise PermanentError(f"{what}: the certificate of {host} is not trusted: {one_line(error)}") from error
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"{what}: {host} is no URL of an API server") from error
    except (aiohttp.ClientError, OSError) as error:
        raise TemporaryError(f"{what}: {host} cannot be reached: {one_line(error)}") from error
    except RuntimeError as error:
        if "closed" not in str(error).lower():
            raise
        raise TemporaryError(f"{what}: the session is closed") from error


def one_line(error: object) -> str:
    """What an error says, without line breaks; its type where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
