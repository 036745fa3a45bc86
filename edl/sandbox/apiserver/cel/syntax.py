"""The syntax of CEL: an expression as nested tuples.

Source: https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax, with the optional syntax (`.?`, `[?`).
"""

from __future__ import annotations

import ast
import re
from typing import Any

Node = tuple[Any, ...]
"""The kind of the node, then its parts."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+\.\d+(?:[eE][-+]?\d+)?|0x[0-9a-fA-F]+u?|\d+u?)
    | (?P<text>[rRbB]?(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))
    | (?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    | (?P<mark>\|\||&&|==|!=|<=|>=|\.\?|\[\?|[-+*/%<>!?:.,()\[\]{}])
    )""",
    re.VERBOSE,
)
_LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_CONSTANTS = {"true": True, "false": False, "null": None}
_ESCAPES = (("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"))


class CelSyntaxError(Exception):
    """The expression cannot be parsed."""


def parse(text: str) -> Node:
    """Parse an expression.

    Raises:
        CelSyntaxError: it is not one.
    """
    parser = _Parser(_tokens(text))
    node = parser.expression()
    parser.expect("")
    return node


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CelSyntaxError(f"token recognition error at: '{text[at : at + 10]}'")
        at = match.end()
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
    return [*tokens, ("end", "")]


def unescape(name: str) -> str:
    """The name of a property that is no identifier: `min__dash__instance` is `min-instance`."""
    if "__" not in name:
        return name
    for escaped, plain in _ESCAPES[1:]:
        name = name.replace(escaped, plain)
    if len(name) > 4 and name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    return name.replace("__underscores__", "__")


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def _peek(self) -> str:
        kind, text = self._tokens[self._at]
        return text if kind in {"mark", "end"} or text == "in" else ""

    def _take(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def expect(self, mark: str) -> None:
        kind, text = self._take()
        if text != mark or (not mark and kind != "end"):
            raise CelSyntaxError(f"mismatched input '{text}' expecting '{mark or '<EOF>'}'")

    def _accept(self, *marks: str) -> str:
        kind, text = self._tokens[self._at]
        if text in marks and (kind == "mark" or text == "in"):
            self._at += 1
            return text
        return ""

    def expression(self) -> Node:
        condition = self._level(0)
        if not self._accept("?"):
            return condition
        then = self._level(0)
        self.expect(":")
        return ("if", condition, then, self.expression())

    def _level(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while operator := self._accept(*_LEVELS[level]):
            left = ("op", operator, left, self._level(level + 1))
        return left

    def _unary(self) -> Node:
        if operator := self._accept("!", "-"):
            return ("not" if operator == "!" else "negative", self._unary())
        return self._member(self._primary())

    def _member(self, node: Node) -> Node:
        while mark := self._accept(".", ".?", "[", "[?"):
            if mark == ".":
                name = self._name()
                node = (
                    ("call", name, node, self._arguments(")")) if self._accept("(") else ("get", node, unescape(name))
                )
            elif mark == ".?":
                node = ("optional", node, ("constant", unescape(self._name())))
            else:
                index = self.expression()
                self.expect("]")
                node = ("index" if mark == "[" else "optional", node, index)
        return node

    def _name(self) -> str:
        kind, text = self._take()
        if kind != "name":
            raise CelSyntaxError(f"mismatched input '{text}' expecting IDENTIFIER")
        return text

    def _arguments(self, end: str) -> list[Node]:
        found: list[Node] = []
        while not self._accept(end):
            if found:
                self.expect(",")
                if self._accept(end):
                    break
            found.append(self.expression())
        return found

    def _primary(self) -> Node:
        if self._accept("("):
            node = self.expression()
            self.expect(")")
            return node
        if self._accept("["):
            return ("list", self._arguments("]"))
        if self._accept("{"):
            return ("map", self._pairs())
        kind, text = self._take()
        if kind == "number":
            return ("constant", float(text) if "." in text else int(text.rstrip("u"), 0))
        if kind == "text":
            return ("constant", ast.literal_eval(text))
        if kind != "name":
            raise CelSyntaxError(f"mismatched input '{text}'")
        if text in _CONSTANTS:
            return ("constant", _CONSTANTS[text])
        return ("call", text, None, self._arguments(")")) if self._accept("(") else ("name", text)

    def _pairs(self) -> list[tuple[Node, Node]]:
        found: list[tuple[Node, Node]] = []
        while not self._accept("}"):
            if found:
                self.expect(",")
            key = self.expression()
            self.expect(":")
            found.append((key, self.expression()))
        return found
