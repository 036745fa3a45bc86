"""CEL expressions, as the rules of edl's definition, admission policies and selectors of devices use them."""

from __future__ import annotations

from typing import Any

import pytest

from edl.install.manifests import controller_manifests
from edl.kube.expressions import MAPPING, CelError, Evaluator, method

EVALUATOR = Evaluator(("self",))


def value_of(text: str, self: Any) -> Any:
    return EVALUATOR.evaluate(text, EVALUATOR.given({"self": self}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4 / 2", 5),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("1 < 2 && 'a' != 'b' || false", True),
        ("self.n == 3.0", True),
        ("dyn(true) == dyn(1)", False),
        ("'b' in ['a', 'b'] && !('c' in {'a': 1})", True),
        ("self.n > 2 ? 'big' : 'small'", "big"),
        ("has(self.n) && !has(self.none)", True),
        ("self.list.all(x, x > 0) && self.list.exists(x, x == 2) && self.list.exists_one(x, x == 2)", True),
        ("self.list.filter(x, x > 1).map(x, x * 2)", [4, 6]),
        ("self.list.map(x, x * 2).sum() + self.list.filter(x, x > 9).sum()", 12),
        ("self.map.all(k, k.startsWith('k'))", True),
        ("self['odd-name'] + self.__namespace__", "xns"),
        ("self.?none.?deeper.orValue('absent')", "absent"),
        ("self.?n.hasValue()", True),
        ("[self.?none] == [self.?nothing]", True),
        ("[self.?n] == [self.?none]", False),
        ("size(self.list) == 3 && self.text.size() == 5", True),
        ("self.text.matches('^h.*o$') && !self.text.matches('^l')", True),
        ("quantity('1Gi').compareTo(quantity('1024Mi'))", 0),
        ("quantity('100m').isLessThan(quantity('1'))", True),
        ("quantity('-1').compareTo(quantity('1m'))", -1),
        ("isQuantity('1Gi') && isQuantity('-1') && !isQuantity('much') && !isQuantity('--1')", True),
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
        "__namespace__": "ns",
        "text": "hello",
    }
    assert value_of(text, self) == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("self.none", "^no such key: none$"),
        ("nobody", "undeclared reference to 'nobody'"),
        ("nothing(1)", "undeclared reference to 'nothing'"),
        ("self.n + 'a'", "^no such overload$"),
        ("self.n && true", "^no such overload$"),
        ("self.n.deeper", "^no such overload$"),
        ("1 / 0", "^division by zero$"),
        ("1 % 0", "^modulus by zero$"),
        ("[1][3]", "^index out of bounds: 3$"),
        ("quantity('much')", "^quantities must match the regular expression '"),
        ("self.none && self.none", "^no such key: none$"),
        *((text, "Syntax error") for text in ("1 +", "(1", "a.", "'open", "a ? b", "[1, 2", "1 2", "#")),
    ],
)
def test_an_expression_without_a_value_says_why_as_kubernetes_does(text: str, error: str) -> None:
    with pytest.raises(CelError, match=error):
        value_of(text, {"n": 1})


def test_an_evaluator_may_know_more_functions() -> None:
    def plus(found: dict[str, int], name: str) -> dict[str, int]:
        return {**found, name: 1}

    evaluator = Evaluator(("self",), [method("plus", plus, MAPPING, "string")])
    assert evaluator.evaluate("self.plus('a').plus('b')", evaluator.given({"self": {}})) == {"a": 1, "b": 1}


def _rules(node: Any) -> list[str]:
    if isinstance(node, list):
        return [rule for item in node for rule in _rules(item)]
    if not isinstance(node, dict):
        return []
    own = [value for key, value in node.items() if key in {"rule", "expression"} and isinstance(value, str)]
    return own + [rule for item in node.values() for rule in _rules(item)]


def test_every_rule_that_edl_ships_is_understood() -> None:
    names = ("self", "oldSelf", "object", "oldObject", "request", "authorizer")
    steps = [method(name, lambda one, _: one, MAPPING, "string") for name in ("group", "resource", "namespace")]
    ends = [method("check", lambda one, _: one, MAPPING, "string"), method("allowed", bool, MAPPING)]
    evaluator = Evaluator(names, [*steps, *ends])
    rules = {rule for body in controller_manifests() for rule in _rules(body)}
    assert len(rules) > 30

    def said(rule: str) -> str:
        try:
            evaluator.evaluate(rule, evaluator.given(dict.fromkeys(names, 1)))
        except CelError as error:
            return str(error)
        return ""

    assert {said(rule) for rule in rules} <= {"", "no such overload"}
