"""An authority and a certificate that Kueue takes for those that it would have made itself.

Kueue makes its own certificate, and its webhooks are then reached by the address of a Service. Outside of a pod there
is no such address, so both are made here, for loopback too. Kueue keeps them because they are what it expects: an
authority of the name `kueue-ca` with a key in PKCS#1, and a certificate that lasts for longer than 90 days.

Source: github.com/open-policy-agent/cert-controller, func refreshCertIfNeeded.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.control_plane.versions import ControlPlaneError

NAME = "kueue-webhook-service.kueue-system.svc"
_DAYS = "3650"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the files are; `folder` has what a webhook server reads."""

    folder: Path

    @property
    def authority(self) -> str:
        """The certificate of the authority in base64, as a `caBundle` has it."""
        return _encoded(self.folder / "ca.crt")

    def secret(self) -> dict[str, str]:
        """The data of the Secret."""
        return {name: _encoded(self.folder / name) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}


def make_certificates(folder: Path) -> Certificates:
    """Make an authority and a certificate in a new folder."""
    folder.mkdir(mode=0o700)
    authority = (
        "-addext",
        "subjectAltName=DNS:kueue-ca",
        "-addext",
        "keyUsage=critical,keyCertSign,digitalSignature",
    )
    _openssl(folder, "req", "-x509", "-subj", "/O=kueue/CN=kueue-ca", "-days", _DAYS, *authority, *_key("ca"))
    names = f"subjectAltName=DNS:{NAME},IP:127.0.0.1"
    usage = ("-addext", "keyUsage=critical,digitalSignature,keyEncipherment")
    purpose = ("-addext", "extendedKeyUsage=serverAuth")
    _openssl(folder, "req", "-subj", f"/CN={NAME}", "-addext", names, *usage, *purpose, *_key("tls"))
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-copy_extensions", "copyall", "-days", _DAYS)
    (folder / "tls.crt").rename(folder / "tls.csr")
    _openssl(folder, "x509", "-req", "-in", "tls.csr", *signed, "-out", "tls.crt")
    for key in ("ca.key", "tls.key"):
        _openssl(folder, "rsa", "-traditional", "-in", key, "-out", key)
    return Certificates(folder)


def _key(name: str) -> tuple[str, ...]:
    return "-newkey", "rsa:2048", "-noenc", "-keyout", f"{name}.key", "-out", f"{name}.crt"


def _openssl(folder: Path, *arguments: str) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ControlPlaneError("openssl is not on PATH; install the package openssl")
    subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
