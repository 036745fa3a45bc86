"""Text from others is shown and never carried out."""

from __future__ import annotations

import json

import pytest

from edl.printable import one_line, printable, shortened

HOSTILE = "\x1b]0;owned\x07 \x1b[2J \x9b31m \r gone \x7f \u202egnp.exe \u2066 \u2028 \udc80"


@pytest.mark.parametrize("text", ["", "plain", "größe 中文 😀", "two\n\tlines", r"C:\temp \u001b"])
def test_plain_text_is_unchanged(text: str) -> None:
    assert printable(text) == text


def test_no_command_of_a_terminal_is_left() -> None:
    shown = printable(HOSTILE)
    assert shown.isprintable()
    assert shown.startswith(r"\u001b]0;owned\u0007 \u001b[2J \u009b31m \u000d gone \u007f \u202egnp.exe")


def test_json_keeps_its_value() -> None:
    written = json.dumps({"message": HOSTILE}, ensure_ascii=False)
    assert json.loads(printable(written)) == {"message": HOSTILE}


@pytest.mark.parametrize(("text", "short"), [("", ""), ("1234567890", "1234567890"), ("12345678901", "12...78901")])
def test_a_long_text_keeps_its_beginning_and_its_end(text: str, short: str) -> None:
    assert shortened(text, 10) == short


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("  indented stays", "  indented stays"),
        ('device.driver == "x"\n  &&\r\n\tdevice.y  > 3\n', 'device.driver == "x" && device.y  > 3'),
        ("a\n\n\nb\tc", "a b c"),
        ("\x1b[2J\rgone", r"\u001b[2J\u000dgone"),
        ("0123456789" * 3, "012345...23456789"),
    ],
)
def test_a_line_stays_one_line_and_short(text: str, line: str) -> None:
    assert one_line(text, 17 if len(text) == 30 else 99) == line
    assert one_line(HOSTILE).isprintable()
