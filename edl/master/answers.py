"""Answers of the master's HTTP API: bodies as JSON, and errors in the form of the API."""

from __future__ import annotations

import math
from http import HTTPStatus

import msgspec
from aiohttp import web

from edl.master.bodies import ErrorAnswer, ErrorDetail

JSON = "application/json"


class HttpError(Exception):
    """An answer with a status other than 200.

    Args:
        status: the HTTP status.
        code: the error code of the body.
        message: for people.
        retry_after_s: the header `Retry-After`, in seconds; None sends none.
    """

    def __init__(self, status: int, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s


def answer(value: object) -> web.Response:
    """Answer 200 with a value as JSON."""
    return web.Response(body=msgspec.json.encode(value), content_type=JSON)


def error_response(error: HttpError) -> web.Response:
    """Answer with the body `{"error": {"code", "message"}}`."""
    body = msgspec.json.encode(ErrorAnswer(ErrorDetail(error.code, str(error))))
    headers = {"Retry-After": str(math.ceil(error.retry_after_s))} if error.retry_after_s is not None else None
    return web.Response(status=error.status, body=body, content_type=JSON, headers=headers)


def code_of(status: int) -> str:
    """The code of a status that aiohttp itself answers, such as `not_found`."""
    return HTTPStatus(status).phrase.lower().replace(" ", "_")
