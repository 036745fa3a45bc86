"""Checks who may see the data of the page: nobody without a token.

Two gates: a token that was printed (`edl dashboard`), and the Kubernetes token of the caller (a controller, and the
kubelet of the sandbox). docs/design/rights.md says why.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edl.clock import Clock
from edl.errors import EdlError, PermanentError, TemporaryError
from edl.kube.access_review import Right, missing_rights
from edl.kube.client.api_errors import RefusedError
from edl.kube.client.session import ApiSession

NEEDED = (
    Right("list", "paddlepaddle.org", "trainingjobs"),
    Right("list", "", "pods"),
    Right("list", "", "nodes"),
)
"""The rights that a viewer needs. They already show everything that the page shows."""

ANSWER_KEPT_S = 60.0
REFUSAL_KEPT_S = 5.0
MAX_ANSWERS = 1_000
MAX_REVIEWS = 4
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}", re.ASCII)
_FORBIDDEN, _UNAUTHORIZED = 403, 401


class DeniedError(PermanentError):
    """The caller may not see the data of the page.

    Attributes:
        status: the HTTP status: 401 if another token may help, else 403.
    """

    def __init__(self, message: str, status: int = _UNAUTHORIZED) -> None:
        super().__init__(message)
        self.status = status


class Gate(Protocol):
    """Decides which requests may see the data.

    Attributes:
        login: what the page asks for: `token` or `kubernetes`.
    """

    login: str

    async def check(self, headers: Mapping[str, str]) -> None:
        """Return if the request may see the data; else raise an error.

        Raises:
            DeniedError: it may not.
            TemporaryError: nobody can tell now.
        """


class TokenGate:
    """Accepts requests that carry a fixed token.

    Args:
        token: the token, not empty.
    """

    login = "token"

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def check(self, headers: Mapping[str, str]) -> None:
        """Return if the token is the right one."""
        if not hmac.compare_digest(bearer_of(headers).encode(), self._token):
            raise DeniedError("the token is wrong; copy it from where edl dashboard printed it")


@dataclass(frozen=True, slots=True)
class _Answer:
    """The API server's answer about a token, and until when it is used."""

    until_s: float
    refusal: str = ""
    status: int = _FORBIDDEN


class ReviewGate:
    """Accepts requests with the Kubernetes token of a user who may list what the page shows.

    Args:
        session: leads to the API server.
        clock: for the age of answers.
        needed: the rights; by default those to list what the page shows.
    """

    login = "kubernetes"

    def __init__(self, session: ApiSession, clock: Clock, needed: Sequence[Right] = NEEDED) -> None:
        self._session, self._clock, self._needed = session, clock, needed
        self._answers: OrderedDict[bytes, _Answer] = OrderedDict()
        self._reviews = asyncio.Semaphore(MAX_REVIEWS)

    async def check(self, headers: Mapping[str, str]) -> None:
        """Return if the owner of the token has the rights."""
        token = bearer_of(headers)
        answer = await self._answer(token)
        if answer.refusal:
            raise DeniedError(answer.refusal, answer.status)

    async def _answer(self, token: str) -> _Answer:
        digest = hashlib.sha256(token.encode()).digest()
        if (known := self._known(digest)) is not None:
            return known
        if self._reviews.locked():
            raise TemporaryError("too many logins at the same time; try again in a few seconds", retry_after_s=3.0)
        async with self._reviews:
            answer = await self._review(token)
        self._answers[digest] = answer
        while len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return answer

    def _known(self, digest: bytes) -> _Answer | None:
        answer = self._answers.get(digest)
        return answer if answer is not None and self._clock.monotonic_s() < answer.until_s else None

    async def _review(self, token: str) -> _Answer:
        try:
            missing = await missing_rights(self._session, token, self._needed)
        except RefusedError as error:
            return self._refused(f"the API server does not accept this token: {error}", _UNAUTHORIZED)
        except TemporaryError as error:
            raise TemporaryError(f"the API server cannot check the token now: {error}", retry_after_s=3.0) from error
        except EdlError as error:
            return self._refused(f"the token cannot be checked: {error}", _FORBIDDEN)
        if missing:
            rights = ", ".join(map(str, missing))
            return self._refused(
                f"the owner of this token may not {rights} in all namespaces, which is needed here; ask for the"
                " right, or use another token",
                _FORBIDDEN,
            )
        return _Answer(self._clock.monotonic_s() + ANSWER_KEPT_S)

    def _refused(self, message: str, status: int) -> _Answer:
        return _Answer(self._clock.monotonic_s() + REFUSAL_KEPT_S, message, status)


def bearer_of(headers: Mapping[str, str]) -> str:
    """The bearer token of a request.

    Raises:
        DeniedError: there is none, or it cannot be one.
    """
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise DeniedError("a token is needed: log in, or send Authorization: Bearer TOKEN")
    if not _TOKEN.fullmatch(token.strip()):
        raise DeniedError("this is no token: a token has no spaces and only ASCII characters")
    return token.strip()
