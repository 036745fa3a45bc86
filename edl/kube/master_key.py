"""The key that the tokens of all masters are made with, and the tokens themselves.

Tokens are recomputed from the key at any time, so that the controller never has to read a Secret. No pod of a job
sees the key: it gets only the tokens of its own job.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from edl.errors import ConfigError, TemporaryError
from edl.kube.client.api_errors import AlreadyExistsError
from edl.kube.client.session import ApiSession
from edl.model.names import JobKey

KEY_SECRET = "edl-master-key"  # noqa: S105 a name
KEY_ENTRY = "key"
_LEAST_BYTES = 16


def default_key_file(environment: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/edl/key`, by default below `~/.local/state`."""
    state = environment.get("XDG_STATE_HOME") or ""
    return (Path(state) if state else Path.home() / ".local" / "state") / "edl" / "key"


def make_token(key: bytes, job: JobKey, uid: str, role: str) -> str:
    """The token of one role (`trainer` or `controller`) of one job, in hex."""
    return hmac.new(key, f"{job.namespace}/{job.name}/{uid}/{role}".encode(), hashlib.sha256).hexdigest()


class MasterKey:
    """Holds the key: from its file, made there where it is missing, else kept in a Secret of the cluster.

    In a Deployment the file is a mount of the optional Secret `edl-master-key`. Where that is not there yet the file
    is missing and cannot be made; then the leader makes the Secret, and a replica that lost that race waits until the
    kubelet shows it the file.
    """

    def __init__(self, path: Path, session: ApiSession, namespace: str) -> None:
        """Read the key or make it.

        Raises:
            ConfigError: the file is there and cannot be used.
        """
        self._path, self._session, self._namespace = path, session, namespace
        self._key = _read(path) or _make(path)

    async def get(self) -> bytes:
        """The key.

        Raises:
            TemporaryError: another replica has made it and the file does not show it yet.
        """
        if self._key is None:
            self._key = _read(self._path) or await self._make_secret()
        return self._key

    async def _make_secret(self) -> bytes:
        key = _new_key()
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": KEY_SECRET, "namespace": self._namespace},
            "type": "Opaque",
            "data": {KEY_ENTRY: base64.b64encode(key).decode()},
        }
        try:
            await self._session.post(f"/api/v1/namespaces/{self._namespace}/secrets", body)
        except AlreadyExistsError as error:
            raise TemporaryError(
                f"--key-file {self._path} does not show the Secret {self._namespace}/{KEY_SECRET} yet; "
                "if this lasts, mount it there"
            ) from error
        return key


def _read(path: Path) -> bytes | None:
    try:
        key = path.read_bytes().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"--key-file {path}: cannot be read: {error.strerror}; give a readable file") from error
    if len(key) < _LEAST_BYTES:
        raise ConfigError(
            f"--key-file {path}: it holds {len(key)} bytes, a key has at least {_LEAST_BYTES}; "
            "delete the file to have a new key made"
        )
    return key


def _make(path: Path) -> bytes | None:
    """A new key in a file that only we can read; None where none can be made there."""
    key = _new_key()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError:
        return None
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    return key


def _new_key() -> bytes:
    return secrets.token_hex(32).encode()
