"""One keep-alive connection to a master. It sorts answers into three kinds: success, try again, and refused.

Only the thread that calls may close the connection; `abort` is for the other threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from edl.errors import ConfigError, PermanentError, TemporaryError
from edl.worker.forks import LIBRARY_CALL

_TRY_AGAIN = {408, 429, 500, 502, 503, 504}
_MAX_RETRY_AFTER_S = 5.0


class MasterConnection:
    """Sends requests to one master, one at a time.

    Args:
        url: http://HOST:PORT or https://HOST:PORT.
        token: the token of the job.
        ca_file: PEM file of the authority that signed the master's certificate; None uses the system's authorities.

    Raises:
        ConfigError: the URL has another form.
    """

    def __init__(self, url: str, token: str, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
            raise ConfigError(
                f"master {url!r}: this is not the URL of a master; give http://HOST:PORT, as EDL_MASTER has it"
            )
        self.url = url
        self._host, self._port, self._ca_file = parts.hostname, port, ca_file
        self._is_tls = parts.scheme == "https"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection: http.client.HTTPConnection | None = None

    @property
    def place(self) -> dict[str, str | None]:
        """The URL, the token and the file of the authority, for another process of this trainer."""
        token = self._headers["Authorization"].removeprefix("Bearer ")
        return {"url": self.url, "token": token, "ca_file": self._ca_file}

    def secret(self, purpose: str) -> str:
        """Derive a secret for a purpose from the token of the job."""
        return hmac.new((self.place["token"] or "").encode(), purpose.encode(), hashlib.sha256).hexdigest()

    def duplicate(self) -> MasterConnection:
        """Make an independent connection to the same master."""
        new = MasterConnection.__new__(MasterConnection)
        new.__dict__.update(self.__dict__, _connection=None)
        return new

    def call(self, method: str, path: str, body: bytes | None, timeout_s: float) -> dict[str, Any]:
        """Send one request, once.

        Args:
            method: the HTTP method.
            path: the path of the route, with its query.
            body: JSON, or None.
            timeout_s: how long to wait for data of the answer, in seconds.

        Returns:
            The JSON object of the answer.

        Raises:
            TemporaryError: there was no answer, or the master asks to try again.
            PermanentError: the master refused the request.
        """
        try:
            status, data, retry_after = self._exchange(method, path, body, timeout_s)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise PermanentError(
                f"master {self.url}: its certificate is not trusted: {error}; pass its authority as ca_file="
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TemporaryError(f"master {self.url}: it does not answer: {error!r}") from error
        except BaseException:
            self.close()
            raise
        if status == http.client.OK:
            return _decoded(data, self.url)
        message = f"master {self.url}: it refused {method} {path}: {status} {data[:500].decode(errors='replace')}"
        if status in _TRY_AGAIN:
            wait_s = min(float(retry_after), _MAX_RETRY_AFTER_S) if retry_after.isdecimal() else None
            raise TemporaryError(message, retry_after_s=wait_s)
        raise PermanentError(message)

    def _exchange(self, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes, str]:
        """The status, the body and the header `Retry-After` of the answer."""
        if self._connection is None or self._connection.sock is None:
            self._connection = self._made(timeout_s)
            with LIBRARY_CALL:  # the name is looked up, and certificates are checked
                self._connection.connect()
        else:
            self._connection.sock.settimeout(timeout_s)
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read(), answer.headers.get("Retry-After", "")

    def abort(self) -> None:
        """Make the call that another thread waits for fail at once. A call that only begins may go on."""
        connection = self._connection
        used = connection.sock if connection is not None else None
        if used is not None:
            with contextlib.suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next call opens a new one. Not while another thread calls."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _made(self, timeout_s: float) -> http.client.HTTPConnection:
        """Make a connection without opening it; `abort` closes it as soon as it is open."""
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        with LIBRARY_CALL:
            context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)


def read_token(path: str) -> str:
    """The token of the job in a file, which EDL_TOKEN_FILE names.

    Raises:
        ConfigError: there is no path, or the file cannot be read.
    """
    if not path:
        raise ConfigError(
            "connect: EDL_TOKEN_FILE is empty; set it to the file with the job's token, or pass token=TOKEN"
        )
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - saves an import
            return file.read().strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"connect: EDL_TOKEN_FILE {path}: cannot be read: {error}; name a readable file") from error


def _decoded(data: bytes, url: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise TemporaryError(f"master {url}: its answer is not JSON: {data[:100]!r}") from error
    if not isinstance(value, dict):
        raise TemporaryError(f"master {url}: its answer is not a JSON object: {data[:100]!r}")
    return value
