"""Reads and writes kubeconfig files: how to reach an API server, and as whom.

Reads what our own clusters and plain admin files hold (a token or a client certificate). A file
that needs a login program is refused with a message rather than half supported.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.e2e.control_plane.versions import ControlPlaneError


@dataclass(frozen=True, slots=True)
class Access:
    """One server and one identity on it."""

    host: str
    port: int
    base_path: str
    token: str
    context: ssl.SSLContext | None


def write_kubeconfig(path: Path, *, server: str, ca: Path, user: str, token: str) -> Path:
    """Write a kubeconfig readable by its owner only; `ca` need not exist yet."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "edl", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "edl", "context": {"cluster": "edl", "user": user}}],
        "current-context": "edl",
    }
    return _write(path, document)


def read_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig.

    Raises:
        ControlPlaneError: the file is missing, or needs what is not supported here.
    """
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config, "context", config["current-context"])
        cluster = _named(config, "cluster", context["cluster"])
        user = _named(config, "user", context["user"])
        url = urlsplit(cluster["server"])
    except (OSError, KeyError, TypeError, StopIteration) as error:
        raise ControlPlaneError(f"{path}: not a usable kubeconfig ({error!r})") from error
    if not {"token", "client-certificate", "client-certificate-data"} & set(user):
        raise ControlPlaneError(f"{path}: the user has neither a token nor a client certificate")
    secure = url.scheme == "https"
    return Access(
        host=url.hostname or "127.0.0.1",
        port=url.port or (443 if secure else 80),
        base_path=url.path.rstrip("/"),
        token=user.get("token", ""),
        context=_context(cluster, user) if secure else None,
    )


def with_token(source: Path, path: Path, *, user: str, token: str) -> Path:
    """Write a kubeconfig for the server of another one, as somebody else."""
    config = yaml.safe_load(source.read_text())
    context = _named(config, "context", config["current-context"])
    context["user"] = user
    return _write(path, {**config, "users": [{"name": user, "user": {"token": token}}]})


def _write(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _named(config: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(e for e in config[f"{kind}s"] if e["name"] == name)[kind]
    return found


def _context(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=base64.b64decode(authority).decode() if authority else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "client-certificate-data" in user:
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.touch(mode=0o600)
            halves = (user["client-certificate-data"], user["client-key-data"])
            pair.write_bytes(b"\n".join(base64.b64decode(half) for half in halves))
            context.load_cert_chain(pair)
    elif "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context
