"""One keep-alive connection to a master, and what its answers mean: go on, try again, or give up."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from edl.errors import ConfigError, PermanentError, TemporaryError

_TRY_AGAIN = {408, 429, 500, 502, 503, 504}
_LONGEST_RETRY_S = 5.0


class Wire:
    """Requests to one master, one at a time.

    Args:
        url: http://HOST:PORT or https://HOST:PORT.
        token: of the job.
        ca_file: PEM of who signed the master's certificate.

    Raises:
        ConfigError: the URL is none.
    """

    def __init__(self, url: str, token: str, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
            raise ConfigError(f"master {url!r} is no URL; give http://HOST:PORT, as EDL_MASTER does")
        self.url = url
        self._host, self._port, self._ca_file = parts.hostname, port, ca_file
        self._is_tls = parts.scheme == "https"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection: http.client.HTTPConnection | None = None

    def fork(self) -> Wire:
        """Another connection to the same master."""
        new = Wire.__new__(Wire)
        new.__dict__.update(self.__dict__, _connection=None)
        return new

    def call(self, method: str, path: str, body: bytes | None, timeout_s: float) -> dict[str, Any]:
        """One try.

        Raises:
            TemporaryError: nobody answered, or the master asks to try again.
            PermanentError: the master refuses.
        """
        try:
            if self._connection is None:
                self._connection = self._open(timeout_s)
            elif self._connection.sock is not None:
                self._connection.sock.settimeout(timeout_s)
            self._connection.request(method, path, body, self._headers)
            answer = self._connection.getresponse()
            status, data, retry = answer.status, answer.read(), answer.headers.get("Retry-After", "")
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise PermanentError(
                f"master {self.url}: its certificate is not trusted: {error}; give ca_file="
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TemporaryError(f"master {self.url}: no answer: {error!r}") from error
        except BaseException:
            self.close()
            raise
        if status == http.client.OK:
            return _value(data, self.url)
        message = f"master {self.url}: {method} {path}: {status} {data[:500].decode(errors='replace')}"
        if status in _TRY_AGAIN:
            wait_s = min(float(retry), _LONGEST_RETRY_S) if retry.isdecimal() else None
            raise TemporaryError(message, retry_after_s=wait_s)
        raise PermanentError(message)

    def abort(self) -> None:
        """Wake up another thread that waits for an answer; its call fails."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection; the next call makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)


def _value(data: bytes, url: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise TemporaryError(f"master {url}: an answer that is no JSON") from error
    if not isinstance(value, dict):
        raise TemporaryError(f"master {url}: an answer that is no object")
    return value
