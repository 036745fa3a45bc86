"""Lists pods through the Kubernetes API with the token that is mounted in every pod with a ServiceAccount.

Standard library only. The token is read anew for each call: the kubelet renews the file.
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

_TIMEOUT_S = 10.0
_PAGE = 500
_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
_TRY_AGAIN = {408, 429, 500, 502, 503, 504}
_EXPIRED = 410


class AccessDeniedError(PermanentError):
    """The account may not list pods."""


@dataclass(frozen=True, slots=True)
class PodApiAddress:
    """Where the API is, and who asks.

    Attributes:
        host: name or address, without brackets.
        namespace: whose pods are listed.
        account: the folder with `token` and `ca.crt`.
    """

    host: str
    port: str
    namespace: str
    account: Path


class PodApi:
    """The pods of one namespace.

    Args:
        address: of the API.
        sleep: waits so many seconds before another try.
    """

    def __init__(self, address: PodApiAddress, sleep: Callable[[float], None] = time.sleep) -> None:
        self._address, self._sleep = address, sleep

    def list_pods(self, selector: str) -> list[dict[str, Any]]:
        """Every pod that the label selector names, page by page.

        Raises:
            AccessDeniedError: the account may not.
            TemporaryError: no answer after several tries.
            PermanentError: the API refuses the selector.
        """
        for pause_s in _PAUSES_S:
            try:
                return self._list(selector)
            except TemporaryError:
                self._sleep(pause_s)
        return self._list(selector)

    def _list(self, selector: str) -> list[dict[str, Any]]:
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
        where = f"https://{self._address.host}:{self._address.port}"
        try:
            connection = self._connect()
            try:
                connection.request("GET", path, headers={"Authorization": f"Bearer {self._token()}"})
                answer = connection.getresponse()
                status, data = answer.status, answer.read()
            finally:
                connection.close()
            body = json.loads(data) if data else {}
        except ssl.SSLCertVerificationError as error:
            raise PermanentError(f"{where}: its certificate is not trusted: {error}; look at ca.crt") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TemporaryError(f"{where}: no answer: {error!r}") from error
        if status == http.client.OK:
            return dict(body)
        said = f"{where}: list pods in {self._address.namespace}: {status} {body.get('message', '')}"
        if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            raise AccessDeniedError(
                f"{said}; kubectl apply -k deploy/pod-reader makes an account that may (serviceAccountName:"
                " edl-pod-reader)"
            )
        if status in _TRY_AGAIN or status == _EXPIRED:
            raise TemporaryError(said)
        raise PermanentError(said)

    def _connect(self) -> http.client.HTTPSConnection:
        authority = self._address.account / "ca.crt"
        try:
            context = ssl.create_default_context(cafile=str(authority))
            return http.client.HTTPSConnection(
                self._address.host, int(self._address.port), timeout=_TIMEOUT_S, context=context
            )
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"API {self._address.host}:{self._address.port}: cannot be used with {authority}: {error}; look at"
                " KUBERNETES_SERVICE_PORT and at the mounted ServiceAccount"
            ) from error

    def _token(self) -> str:
        path = self._address.account / "token"
        try:
            return path.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}; look at the pod's ServiceAccount") from error
