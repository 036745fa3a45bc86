"""Checks who may read logs and run commands: users with a right to `nodes/proxy`, as with every kubelet.

A caller shows a token, as the embedded API server does, or a client certificate of an authority that the API server
trusts too, as kube-apiserver does. What its owner may do, the API server says.

Source: https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from edl.clock import SystemClock
from edl.dashboard.access import DeniedError, ReviewGate
from edl.errors import EdlError, TemporaryError
from edl.kube.access_review import Right, has_right
from edl.kube.client.session import ApiSession
from edl.observability.own_hosts import foreign

NEEDED = Right("create", "", "nodes/proxy")
_AUTHORITY = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class Callers:
    """Recognises the callers of one kubelet.

    Args:
        session: leads to the API server.
    """

    def __init__(self, session: ApiSession) -> None:
        self._session = session
        self._gate = ReviewGate(session, SystemClock(), (NEEDED,))

    async def tls(self, certificate: Path) -> ssl.SSLContext:
        """The TLS settings of the kubelet: its own certificate, and the authority of client certificates, if any."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate)
        if authority := await self._authority():
            context.load_verify_locations(cadata=authority)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    async def _authority(self) -> str:
        try:
            found = msgspec.json.decode(await self._session.get(_AUTHORITY))
        except TemporaryError:
            raise
        except EdlError:  # no such object, or no right to read it: callers need a token
            return ""
        return str((found.get("data") or {}).get("client-ca-file") or "")

    async def check(self, request: web.Request) -> None:
        """Return if the caller may read logs and run commands.

        Raises:
            DeniedError: it may not.
            EdlError: the API server cannot tell now.
        """
        if why := foreign(request):
            raise DeniedError(why, 403)
        shown = request.get_extra_info("peercert")
        if not shown or "Authorization" in request.headers:
            await self._gate.check(request.headers)
            return
        names = _subject(shown)
        user = "".join(names.get("commonName", [])[:1])
        if not await has_right(self._session, user, names.get("organizationName", []), NEEDED):
            raise DeniedError(f"user {user!r} may not {NEEDED}; bind a role such as system:kubelet-api-admin", 403)


def _subject(certificate: dict[str, Any]) -> dict[str, list[str]]:
    """The parts of the subject of a certificate that TLS has verified: name -> values."""
    parts: dict[str, list[str]] = {}
    for name, value in (pair for part in certificate.get("subject", ()) for pair in part):
        parts.setdefault(name, []).append(value)
    return parts
