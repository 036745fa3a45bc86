"""Label selectors and field selectors, parsed from their query strings.

Source: k8s.io/apimachinery pkg/labels and pkg/fields (the grammar and the words of the errors).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from edl.sandbox.apiserver.errors import bad_request

Labels = Mapping[str, str]
Fields = Mapping[str, str]

_TOKEN = re.compile(r"\s*(?:(?P<op>!=|==|=|!|\(|\)|,|>|<)|(?P<word>[^\s!=(),<>]+))")
_KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@dataclass(frozen=True, slots=True)
class _Requirement:
    key: str
    operator: str
    values: tuple[str, ...]

    def holds(self, labels: Labels) -> bool:
        present = self.key in labels
        match self.operator:
            case "in":
                return present and labels[self.key] in self.values
            case "notin":
                return not present or labels[self.key] not in self.values
            case "exists":
                return present
            case "absent":
                return not present
        if not present or not labels[self.key].lstrip("-").isdigit():
            return False
        number, bound = int(labels[self.key]), int(self.values[0])
        return number > bound if self.operator == ">" else number < bound


class LabelSelector:
    """A parsed label selector."""

    def __init__(self, text: str) -> None:
        """Parse a selector such as `app=web,tier in (a, b),!old`; empty selects everything.

        Raises:
            ApiError: 400, it cannot be parsed.
        """
        self._requirements = tuple(_Parser(text).requirements()) if text.strip() else ()

    def __bool__(self) -> bool:
        return bool(self._requirements)

    def matches(self, labels: Labels) -> bool:
        """Return whether every requirement holds."""
        return all(requirement.holds(labels) for requirement in self._requirements)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [match["op"] or match["word"] for match in _TOKEN.finditer(text)]
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def requirements(self) -> Iterator[_Requirement]:
        while True:
            yield self._requirement()
            mark = self._next()
            if not mark:
                return
            if mark != ",":
                raise _unparsed(mark, "',' or 'end of string'")

    def _requirement(self) -> _Requirement:
        if self._peek() == "!":
            self._next()
            return _Requirement(self._key(), "absent", ())
        key = self._key()
        operator = self._peek()
        if operator in {"", ","}:
            return _Requirement(key, "exists", ())
        self._next()
        if operator in {"in", "notin"}:
            return _Requirement(key, operator, self._values())
        if operator not in {"=", "==", "!=", ">", "<"}:
            raise _unparsed(operator, "in, notin, =, ==, !=, gt, lt")
        value = self._value()
        if operator in {">", "<"} and not value.lstrip("-").isdigit():
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise bad_request(f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": {detail}')
        return _Requirement(key, {"=": "in", "==": "in", "!=": "notin"}.get(operator, operator), (value,))

    def _key(self) -> str:
        key = self._next()
        if not key or key in "=!(),<>":
            raise _unparsed(key, "identifier")
        if not _KEY.match(key):
            raise bad_request(f'unable to parse requirement: <nil>: Invalid value: "{key}": {_KEY_RULE}')
        return key

    def _values(self) -> tuple[str, ...]:
        if (mark := self._next()) != "(":
            raise _unparsed(mark, "'('")
        values = [self._value()]
        while (mark := self._next()) != ")":
            if mark != ",":
                raise _unparsed(mark, "',' or ')'")
            values.append(self._value())
        return tuple(values)

    def _value(self) -> str:
        if self._peek() in {"", ",", ")"}:
            return ""
        value = self._next()
        if not _VALUE.match(value):
            raise bad_request(
                f"unable to parse requirement: values[0]: Invalid value: {value!r}: a valid label value"
            )
        return value


def _unparsed(found: str, expected: str) -> Exception:
    return bad_request(f"unable to parse requirement: found '{found}' expected: {expected}")


Test = Callable[[Fields], bool]


class FieldSelector:
    """A parsed field selector, such as `status.phase!=Failed,spec.nodeName=n1`."""

    def __init__(self, text: str, known: tuple[str, ...]) -> None:
        """Parse a selector.

        Args:
            text: the text of the query; empty selects everything.
            known: the fields that this resource can be selected by, besides metadata.name and metadata.namespace.

        Raises:
            ApiError: 400, it cannot be parsed or names another field.
        """
        terms = [self._term(part) for part in re.split(r"(?<!\\),", text) if part]
        for name, _, _ in terms:
            if name not in {"metadata.name", "metadata.namespace", *known}:
                raise bad_request(_unknown_field(name, known))
        self._terms = tuple(terms)

    @staticmethod
    def _term(part: str) -> tuple[str, bool, str]:
        match = re.match(r"^(.*?)(!=|==|=)(.*)$", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        return match[1].strip(), match[2] != "!=", re.sub(r"\\(.)", r"\1", match[3])

    def __bool__(self) -> bool:
        return bool(self._terms)

    def matches(self, fields: Fields) -> bool:
        """Return whether every term holds; an absent field is empty."""
        return all((fields.get(name, "") == value) is wanted for name, wanted, value in self._terms)

    def exact(self, name: str) -> str | None:
        """The value that the selector demands of a field, if it demands one."""
        return next((value for field, wanted, value in self._terms if field == name and wanted), None)


def _unknown_field(name: str, known: tuple[str, ...]) -> str:
    if known:
        return f"field label not supported: {name}"
    return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
