"""CEL expressions, as the rules of edl's definition and of admission policies use them."""

from __future__ import annotations

from typing import Any

import pytest

from edl.install.manifests import controller_manifests
from edl.sandbox.apiserver.cel.functions import CelError
from edl.sandbox.apiserver.cel.program import Program
from edl.sandbox.apiserver.cel.syntax import CelSyntaxError, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4 / 2", 5),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("1 < 2 && 'a' != 'b' || false", True),
        ("1 == 1.0", True),
        ("true == 1", False),
        ("[1, 2] == [1.0, 2.0]", True),
        ("'b' in ['a', 'b'] && !('c' in {'a': 1})", True),
        ("self.n > 2 ? 'big' : 'small'", "big"),
        ("has(self.n) && !has(self.none)", True),
        ("self.list.all(x, x > 0) && self.list.exists(x, x == 2) && self.list.exists_one(x, x == 2)", True),
        ("self.list.filter(x, x > 1).map(x, x * 2)", [4, 6]),
        ("self.list.map(x, x * 2).sum() + self.list.filter(x, x > 9).sum()", 12),
        ("self.map.all(k, k.startsWith('k'))", True),
        ("self['odd-name'] + self.odd__dash__name", "xx"),
        ("self.__namespace__", "ns"),
        ("self.?none.?deeper.orValue('absent')", "absent"),
        ("self.?n.hasValue()", True),
        ("[self.?none] == [self.?nothing]", True),
        ("[self.?n] == [self.?none]", False),
        ("size(self.list) == 3 && self.text.size() == 5", True),
        ("self.text.matches('^h.*o$') && !self.text.matches('^l')", True),
        ("quantity('1Gi').compareTo(quantity('1024Mi'))", 0),
        ("quantity('100m').isLessThan(quantity('1'))", True),
        ("isQuantity('1Gi') && !isQuantity('much')", True),
        ("string(5) + string(true)", "5true"),
        ("self.none || true", True),
        ("'a,b'.split(',').join('-')", "a-b"),
        (r"'it\'s' == \"it's\"".replace('\\"', '"'), True),
    ],
)
def test_an_expression_has_its_value(text: str, value: Any) -> None:
    self = {
        "n": 3,
        "list": [1, 2, 3],
        "map": {"k1": 1, "k2": 2},
        "odd-name": "x",
        "namespace": "ns",
        "text": "hello",
    }
    assert Program(text).evaluate({"self": self}) == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("self.none", "no such key: none"),
        ("nobody", "undeclared reference to 'nobody'"),
        ("nothing(1)", "undeclared reference to 'nothing'"),
        ("1 + 'a'", "no such overload"),
        ("1 && true", "no such overload"),
        ("1 / 0", "division by zero"),
        ("[1][3]", "index out of bounds: 3"),
        ("quantity('much')", "quantities must match"),
        ("self.none && self.none", "no such key"),
    ],
)
def test_an_expression_without_a_value_says_why(text: str, error: str) -> None:
    with pytest.raises(CelError, match=error):
        Program(text).evaluate({"self": {}})


@pytest.mark.parametrize("text", ["1 +", "(1", "a.", "'open", "a ? b", "[1, 2", "1 2", "#"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(CelSyntaxError):
        parse(text)


def _rules(node: Any) -> list[str]:
    if isinstance(node, list):
        return [rule for item in node for rule in _rules(item)]
    if not isinstance(node, dict):
        return []
    own = [value for key, value in node.items() if key in {"rule", "expression"} and isinstance(value, str)]
    return own + [rule for item in node.values() for rule in _rules(item)]


def test_every_rule_that_edl_ships_is_understood() -> None:
    rules = {rule for body in controller_manifests() for rule in _rules(body)}
    assert len(rules) > 30
    for rule in rules:
        parse(rule)
