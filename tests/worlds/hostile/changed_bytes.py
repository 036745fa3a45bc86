"""Bytes that are almost right: inputs that are valid, changed in ways that have broken parsers before."""

from __future__ import annotations

from random import Random

MOST_BYTES = 200_000
_TOKENS = (
    *(b"", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\r\n", b"\r\n\r\n", b"\n---\n", b"\t", b", ", b": ", b'"', b"'"),
    *(b"null", b"true", b"-1", b"NaN", b"1e999", b"infinity", b"9" * 400, b"18446744073709551616", b"0x7f", b"1.5"),
    *(b"{}", b"[]", b"[" * 5000, b'{"a":' * 5000, b"]" * 50, b"&a", b"*a", b"<<: *a", b"!!python/object:os.system"),
    *(b"\\u0000", b"\\ud800", b"%00", b"..%2f", b"/../", b"A" * 9000, b"\xe2\x80\xae", b"2026-13-45T99:99:99Z"),
    *(b"Content-Length: 99999999999\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Content-Encoding: gzip\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n"),
    b"ffffffffffffffff\r\n",
)


def changed(seed: bytes, random: Random) -> bytes:
    """The bytes with one to six changes: bits, pieces that go or come twice, and odd tokens."""
    data = bytearray(seed)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        _change(data, random)
        del data[MOST_BYTES:]
    return bytes(data)


def _change(data: bytearray, random: Random) -> None:
    at, end = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
    near = min(end, at + random.choice((1, 4, 40)))
    match random.randrange(8):
        case 0 if data:
            data[at % len(data)] ^= 1 << random.randrange(8)
        case 1:
            del data[at:near]
        case 2:
            data[at:at] = data[at:near] * random.choice((1, 2, 500))
        case 3:
            data[at:near] = random.choice(_TOKENS)
        case 4:
            data[at:at] = random.choice(_TOKENS)
        case 5:
            del data[random.choice((at, end)) :]
        case 6:
            data[at:near] = random.randbytes(near - at)
        case _:
            _replace_number(data, random)


def _replace_number(data: bytearray, random: Random) -> None:
    """Put an odd number in the place of one that is there."""
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if digits:
        at = random.choice(digits)
        odd = (b"-1", b"0", b"2147483648", b"9007199254740993", b"1.5", b"1e400", b"null", b'"x"', b"[1]")
        data[at : at + 1] = random.choice(odd)
