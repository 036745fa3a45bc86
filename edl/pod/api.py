"""Lists pods through the Kubernetes API, with the token that the kubelet mounts for the pod's ServiceAccount.

Standard library only. The token is read again for each call, because the kubelet renews the file.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from edl.errors import ConfigError, PermanentError, TemporaryError
from edl.waiting import PauseLengths

_TIMEOUT_S = 10.0
_PAGE = 500  # pods in one answer
_TRIES, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5, 0.5, 4.0
_TRY_AGAIN = {408, 429, 500, 502, 503, 504}
_EXPIRED = 410  # the token of the next page is too old


class AccessDeniedError(PermanentError):
    """The ServiceAccount may not list pods."""


@dataclass(frozen=True, slots=True)
class PodApiAddress:
    """The address of the API server, and the account that calls it.

    Attributes:
        host: a name or an address, without brackets.
        port: as text.
        namespace: the namespace of the pods.
        account: the folder with `token` and `ca.crt`.
    """

    host: str
    port: str
    namespace: str
    account: Path


class PodApi:
    """The pods of one namespace.

    Args:
        address: the address of the API.
        sleep: waits for a number of seconds.
    """

    def __init__(self, address: PodApiAddress, sleep: Callable[[float], None] = time.sleep) -> None:
        self._address, self._sleep = address, sleep

    def list_pods(self, selector: str) -> list[dict[str, Any]]:
        """Every pod that matches a label selector.

        Raises:
            AccessDeniedError: the account may not list pods.
            TemporaryError: the API did not answer after several tries.
            PermanentError: the API refuses the selector.
        """
        pauses = PauseLengths(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        for _ in range(_TRIES - 1):
            try:
                return self._list(selector)
            except TemporaryError:
                self._sleep(pauses.next_s())
        return self._list(selector)

    def _list(self, selector: str) -> list[dict[str, Any]]:
        """Try once to list the pods, page by page."""
        pods: list[dict[str, Any]] = []
        token = ""
        while True:
            query = {"labelSelector": selector, "limit": str(_PAGE), **({"continue": token} if token else {})}
            answer = self._get(
                f"/api/v1/namespaces/{quote(self._address.namespace, safe='')}/pods?{urlencode(query)}"
            )
            pods += answer.get("items") or []
            token = answer.get("metadata", {}).get("continue") or ""
            if not token:
                return pods

    def _get(self, path: str) -> dict[str, Any]:
        server = f"https://{self._address.host}:{self._address.port}"
        try:
            status, data = self._exchange(path)
            body = json.loads(data) if data else {}
        except ssl.SSLCertVerificationError as error:
            raise PermanentError(
                f"API server {server}: its certificate is not trusted: {error}; check {self._address.account}/ca.crt"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TemporaryError(f"API server {server}: no answer: {error!r}") from error
        if status == http.client.OK:
            return dict(body)
        message = (
            f"API server {server}: it refused to list the pods of namespace {self._address.namespace}:"
            f" {status} {body.get('message', '')}"
        )
        if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            raise AccessDeniedError(
                f"{message}; create an account that may list pods (kubectl apply -k deploy/pod-reader), and set"
                " serviceAccountName: edl-pod-reader"
            )
        if status in _TRY_AGAIN or status == _EXPIRED:
            raise TemporaryError(message)
        raise PermanentError(message)

    def _exchange(self, path: str) -> tuple[int, bytes]:
        """Send one GET request; returns status and body."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token()}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        authority = self._address.account / "ca.crt"
        try:
            context = ssl.create_default_context(cafile=str(authority))
            return http.client.HTTPSConnection(
                self._address.host, int(self._address.port), timeout=_TIMEOUT_S, context=context
            )
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"API server {self._address.host}:{self._address.port}: no connection with {authority}: {error};"
                " check KUBERNETES_SERVICE_PORT and the mounted ServiceAccount"
            ) from error

    def _token(self) -> str:
        path = self._address.account / "token"
        try:
            return path.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path}: cannot be read: {error}; check that the pod mounts its ServiceAccount token, and that"
                " the user of the container may read it (securityContext: runAsUser, fsGroup)"
            ) from error
