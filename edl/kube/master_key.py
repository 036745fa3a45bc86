"""The key that makes the tokens of all masters, and the tokens.

A token can be computed from the key at any time, so the controller never has to read a Secret. No pod of a job sees
the key: a pod gets only the tokens of its own job.
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
from edl.model.names import KEY_SECRET, JobKey

KEY_ENTRY = "key"
_MIN_BYTES = 16


def default_key_file(environment: Mapping[str, str]) -> Path:
    """Return `$XDG_STATE_HOME/edl/key`; XDG_STATE_HOME defaults to `~/.local/state`."""
    state = environment.get("XDG_STATE_HOME") or ""
    return (Path(state) if state else Path.home() / ".local" / "state") / "edl" / "key"


def make_token(key: bytes, job: JobKey, uid: str, role: str) -> str:
    """Return the token of one role (`trainer` or `controller`) of one job, in hex."""
    return hmac.new(key, f"{job.namespace}/{job.name}/{uid}/{role}".encode(), hashlib.sha256).hexdigest()


class MasterKey:
    """The key: read from its file or created there; if the file cannot be created, from a Secret.

    In a Deployment the file is a mount of the optional Secret `edl-master-key`. While that Secret does not exist, the
    file is missing and cannot be created. Then the leader creates the Secret. A replica that finds the Secret already
    created waits until the kubelet updates the mount.
    """

    def __init__(self, path: Path, session: ApiSession, namespace: str) -> None:
        """Read the key from its file, or create the file.

        Args:
            path: the path of the key file.
            session: creates the Secret.
            namespace: the namespace of the Secret.

        Raises:
            ConfigError: the file exists and cannot be used.
        """
        self._path, self._session, self._namespace = path, session, namespace
        self._key = _read(path) or _create(path)

    async def get(self) -> bytes:
        """Return the key.

        Raises:
            TemporaryError: another replica has created the Secret, and the file does not contain it yet.
        """
        if self._key is None:
            self._key = _read(self._path) or await self._create_secret()
        return self._key

    async def _create_secret(self) -> bytes:
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
                f"--key-file {self._path} does not contain the Secret {self._namespace}/{KEY_SECRET} yet; edl tries "
                "again; if this message persists, mount the Secret there"
            ) from error
        return key


def _read(path: Path) -> bytes | None:
    try:
        key = path.read_bytes().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"--key-file {path} cannot be read: {error.strerror}; give a readable file") from error
    if len(key) < _MIN_BYTES:
        raise ConfigError(
            f"--key-file {path} holds {len(key)} bytes, but a key needs at least {_MIN_BYTES}; "
            "delete the file, and edl creates a new key"
        )
    return key


def _create(path: Path) -> bytes | None:
    """Create a file with a new key that only this user can read; return None if that is not possible."""
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
