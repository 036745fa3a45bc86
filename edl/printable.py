"""Text from others as text that a terminal only shows.

Names, messages of containers and answers of masters may come from anybody. A terminal takes some characters as
commands: they move the cursor, rename the window, hide what was printed before, or write a line from right to left.

Source: ECMA-48 (control characters C0 and C1) and Unicode Standard Annex #9 (characters that change the direction).
"""

from __future__ import annotations

import re

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKS = re.compile(r"[ \t]*(?:\r?\n|\t)[ \t\r\n]*")
LONGEST_LINE = 4000
"""Characters of a line; none that edl writes by itself is as long."""
LONGEST_CELL = 300
"""Characters of a cell of a table: a name of Kubernetes has at most 253."""


def printable(text: str) -> str:
    r"""Return the text with every character that is a command of a terminal written as `\uXXXX`.

    Line feeds and tabs stay. The result of a JSON text is JSON with the same value.
    """
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """Return a text of others as one line of at most `most` characters, with a space for line feeds and tabs.

    So a row or a message stays one line, whatever names, values and expressions it quotes.
    """
    return shortened(printable(_BREAKS.sub(" ", text.rstrip())), most)


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters: of a longer one the beginning and the end, `...` between them."""
    if len(text) <= most:
        return text
    end = most // 2
    return f"{text[: most - end - 3]}...{text[-end:]}"
