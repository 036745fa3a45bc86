"""A self-signed certificate for a server on this machine, made with the standard library alone.

The API server reads the logs of a container from its kubelet over https, and does not check the certificate unless it
was given an authority for kubelets. So this certificate proves nothing to anybody; it only lets TLS begin. For the
same reason the plain arithmetic here, whose duration depends on the key, does no harm.

Source: SEC 1 (ECDSA, P-256), RFC 5280 (certificate), RFC 5915 (private key).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_A = _P - 3
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_DAYS = 365
_EC_KEY = bytes.fromhex("06072a8648ce3d0201")  # OBJECT IDENTIFIER ecPublicKey
_CURVE = bytes.fromhex("06082a8648ce3d030107")  # prime256v1
_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_SUBJECT_ALT_NAME = bytes.fromhex("0603551d11")

Point = tuple[int, int] | None


def write_certificate(path: Path, name: str = "localhost", address: bytes = b"\x7f\x00\x00\x01") -> Path:
    """Write a key and a certificate for it into one PEM file that only this user may read; returns the path.

    Args:
        path: the path of the file.
        name: the host name.
        address: the IPv4 address, as four bytes.
    """
    scalar = secrets.randbelow(_N - 1) + 1
    point = _multiply(scalar, _G)
    certificate = _certificate(scalar, point, name, address)
    path.touch(mode=0o600)
    path.write_text(_pem("EC PRIVATE KEY", _private_key(scalar, point)) + _pem("CERTIFICATE", certificate))
    return path


def _certificate(scalar: int, point: Point, name: str, address: bytes) -> bytes:
    now = datetime.now(UTC)
    subject = _tag(0x30, _tag(0x31, _tag(0x30, _COMMON_NAME, _tag(0x0C, name.encode()))))
    names = _tag(0x30, _tag(0x82, name.encode()), _tag(0x87, address))
    body = _tag(
        0x30,
        _tag(0xA0, _integer(2)),
        _integer(secrets.randbits(120)),
        _ECDSA_SHA256,
        subject,
        _tag(0x30, _time(now - timedelta(days=1)), _time(now + timedelta(days=_DAYS))),
        subject,
        _tag(0x30, _tag(0x30, _EC_KEY, _CURVE), _tag(0x03, b"\0" + _octets(point))),
        _tag(0xA3, _tag(0x30, _tag(0x30, _SUBJECT_ALT_NAME, _tag(0x04, names)))),
    )
    return _tag(0x30, body, _ECDSA_SHA256, _tag(0x03, b"\0" + _sign(scalar, body)))


def _private_key(scalar: int, point: Point) -> bytes:
    public = _tag(0xA1, _tag(0x03, b"\0" + _octets(point)))
    return _tag(0x30, _integer(1), _tag(0x04, scalar.to_bytes(32, "big")), _tag(0xA0, _CURVE), public)


def _sign(scalar: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = secrets.randbelow(_N - 1) + 1
        point = _multiply(nonce, _G)
        r = (point[0] if point else 0) % _N
        s = pow(nonce, -1, _N) * (digest + r * scalar) % _N
        if r and s:
            return _tag(0x30, _integer(r), _integer(s))


def _multiply(scalar: int, point: Point) -> Point:
    result: Point = None
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point, scalar = _add(point, point), scalar >> 1
    return result


def _add(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % _P == 0:
            return None
        slope = (3 * one[0] * one[0] + _A) * pow(2 * one[1], -1, _P) % _P
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P) % _P
    x = (slope * slope - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _octets(point: Point) -> bytes:
    x, y = point or (0, 0)
    return b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")


def _tag(tag: int, *parts: bytes) -> bytes:
    """Encode a value in DER: tag, length, content."""
    content = b"".join(parts)
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = (length.bit_length() + 7) // 8
    return bytes([tag, 0x80 | size]) + length.to_bytes(size, "big") + content


def _integer(value: int) -> bytes:
    return _tag(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _time(at: datetime) -> bytes:
    return _tag(0x17, at.strftime("%y%m%d%H%M%SZ").encode())


def _pem(kind: str, content: bytes) -> str:
    text = base64.b64encode(content).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])
