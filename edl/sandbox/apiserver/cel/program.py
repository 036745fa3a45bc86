"""Evaluation of CEL expressions.

No maintained library for Python has both the optional syntax and the functions of Kubernetes, which the rules of our
own definition use. This evaluator knows what these rules and Kubernetes' admission policies use. It does not check
types beforehand, and it refuses what it does not know.

Source: https://github.com/google/cel-spec/blob/master/doc/langdef.md#evaluation, and
https://kubernetes.io/docs/reference/using-api/cel/ for the libraries.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from edl.sandbox.apiserver.cel.functions import FUNCTIONS, NONE, CelError, Optional, Unfit
from edl.sandbox.apiserver.cel.syntax import Node, parse

Scope = Mapping[str, Any]
Run = Callable[[Scope], Any]

_MACROS = {"all", "exists", "exists_one", "map", "filter"}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


class Program:
    """A parsed expression."""

    def __init__(self, text: str) -> None:
        """Parse an expression.

        Raises:
            CelSyntaxError: it is not one.
        """
        self.text = text
        self._run = _compiled(parse(text))

    def evaluate(self, variables: Scope) -> Any:
        """The value of the expression, given its variables.

        Raises:
            CelError: it has none for these variables.
        """
        return self._run(variables)


@lru_cache(maxsize=4096)
def program(text: str) -> Program:
    """A parsed expression, remembered."""
    return Program(text)


def _compiled(node: Node) -> Run:
    kind, *parts = node
    return _COMPILERS[kind](*parts)


def _constant(value: Any) -> Run:
    return lambda _scope: value


def _name(name: str) -> Run:
    def run(scope: Scope) -> Any:
        if name not in scope:
            raise CelError(f"undeclared reference to '{name}'")
        return scope[name]

    return run


def _get(target: Node, name: str) -> Run:
    inner = _compiled(target)
    return lambda scope: _item(inner(scope), name)


def _index(target: Node, index: Node) -> Run:
    inner, at = _compiled(target), _compiled(index)
    return lambda scope: _item(inner(scope), at(scope))


def _item(value: Any, key: Any) -> Any:
    if isinstance(value, Optional):
        return _optional_item(value, key)
    if isinstance(value, Mapping):
        if key in value:
            if isinstance(found := value[key], Unfit):
                raise CelError(found.why)
            return found
        raise CelError(f"no such key: {key}")
    if isinstance(value, list) and isinstance(key, int):
        if 0 <= key < len(value):
            return value[key]
        raise CelError(f"index out of bounds: {key}")
    raise CelError("no such overload")


def _optional(target: Node, key: Node) -> Run:
    inner, at = _compiled(target), _compiled(key)

    def run(scope: Scope) -> Any:
        value = inner(scope)
        return _optional_item(value if isinstance(value, Optional) else Optional(value), at(scope))

    return run


def _optional_item(value: Optional, key: Any) -> Optional:
    if value.is_empty:
        return NONE
    try:
        return Optional(_item(value.value, key))
    except CelError:
        return NONE


def _operation(sign: str, left: Node, right: Node) -> Run:
    first, second = _compiled(left), _compiled(right)
    if sign in {"&&", "||"}:
        return _logical(first, second, decisive=sign == "||")
    if sign in {"==", "!="}:
        return lambda scope: same(first(scope), second(scope)) is (sign == "==")
    if sign == "in":
        return lambda scope: _contains(second(scope), first(scope))
    return lambda scope: _arithmetic(sign, first(scope), second(scope))


def _logical(first: Run, second: Run, *, decisive: bool) -> Run:
    """Either side may decide, so an error on the other side does not matter."""

    def run(scope: Scope) -> bool:
        try:
            if _bool(first(scope)) is decisive:
                return decisive
        except CelError:
            if _bool(second(scope)) is decisive:
                return decisive
            raise
        return _bool(second(scope))

    return run


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError("no such overload")
    return value


def same(left: Any, right: Any) -> bool:
    """Equality of CEL: numbers compare across types, a bool is no number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.is_empty is right.is_empty and (left.is_empty or same(left.value, right.value))
    return bool(left == right)


def _contains(container: Any, value: Any) -> bool:
    if isinstance(container, Mapping):
        if isinstance(found := container.get(value), Unfit):
            raise CelError(found.why)
        return value in container
    if isinstance(container, list):
        return any(same(value, item) for item in container)
    raise CelError("no such overload")


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    if isinstance(left, bool) or isinstance(right, bool) or isinstance(left, str) is not isinstance(right, str):
        raise CelError("no such overload")
    try:
        if sign in {"/", "%"}:
            if isinstance(left, float) or isinstance(right, float):
                return left / right
            # Integers are cut towards zero, as in Go.
            quotient = abs(left) // abs(right) * (1 if (left < 0) is (right < 0) else -1)
            return quotient if sign == "/" else left - quotient * right
        return _ARITHMETIC[sign](left, right)
    except ZeroDivisionError:
        raise CelError("division by zero") from None
    except TypeError:
        raise CelError("no such overload") from None


def _choice(condition: Node, then: Node, otherwise: Node) -> Run:
    test, yes, no = map(_compiled, (condition, then, otherwise))
    return lambda scope: yes(scope) if _bool(test(scope)) else no(scope)


def _not(node: Node) -> Run:
    inner = _compiled(node)
    return lambda scope: not _bool(inner(scope))


def _negative(node: Node) -> Run:
    inner = _compiled(node)
    return lambda scope: -inner(scope)


def _list(nodes: list[Node]) -> Run:
    items = [_compiled(node) for node in nodes]
    return lambda scope: [item(scope) for item in items]


def _map(pairs: list[tuple[Node, Node]]) -> Run:
    items = [(_compiled(key), _compiled(value)) for key, value in pairs]
    return lambda scope: {key(scope): value(scope) for key, value in items}


def _call(name: str, target: Node | None, arguments: list[Node]) -> Run:
    if name == "has" and target is None:
        return _has(arguments[0])
    if name in _MACROS and target is not None:
        return _macro(name, _compiled(target), arguments)
    receiver = None if target is None else _compiled(target)
    given = [_compiled(argument) for argument in arguments]

    def run(scope: Scope) -> Any:
        values = [argument(scope) for argument in given]
        if receiver is not None:
            values.insert(0, receiver(scope))
        return _invoke(name, values)

    return run


def _invoke(name: str, values: list[Any]) -> Any:
    function = FUNCTIONS.get(name)
    method = getattr(values[0], f"cel_{name}", None) if values else None
    if method is not None:
        return method(*values[1:])
    if function is None:
        raise CelError(f"undeclared reference to '{name}'")
    try:
        return function(*values)
    except (TypeError, AttributeError):
        raise CelError(f"found no matching overload for '{name}'") from None


def _has(node: Node) -> Run:
    if node[0] != "get":
        raise CelError("invalid argument to has() macro")
    inner, name = _compiled(node[1]), node[2]

    def run(scope: Scope) -> bool:
        value = inner(scope)
        if not isinstance(value, Mapping):
            raise CelError("no such overload")
        return name in value

    return run


def _macro(name: str, target: Run, arguments: list[Node]) -> Run:
    variable, bodies = arguments[0][1], [_compiled(body) for body in arguments[1:]]

    def results(scope: Scope, body: Run) -> Iterable[tuple[Any, Any]]:
        container = target(scope)
        if not isinstance(container, list | Mapping):
            raise CelError("no such overload")
        for item in container:
            yield item, body({**scope, variable: item})

    def run(scope: Scope) -> Any:
        match name:
            case "all":
                return _every(results(scope, bodies[0]), decisive=False)
            case "exists":
                return _every(results(scope, bodies[0]), decisive=True)
            case "exists_one":
                return sum(_bool(value) for _, value in results(scope, bodies[0])) == 1
            case "filter":
                return [item for item, value in results(scope, bodies[0]) if _bool(value)]
        if len(bodies) == 1:
            return [value for _, value in results(scope, bodies[0])]
        kept = (item for item, value in results(scope, bodies[0]) if _bool(value))
        return [bodies[1]({**scope, variable: item}) for item in kept]

    return run


def _every(results: Iterable[tuple[Any, Any]], *, decisive: bool) -> bool:
    for _, value in results:
        if _bool(value) is decisive:
            return decisive
    return not decisive


_COMPILERS: dict[str, Callable[..., Run]] = {
    "constant": _constant,
    "name": _name,
    "get": _get,
    "index": _index,
    "optional": _optional,
    "op": _operation,
    "if": _choice,
    "not": _not,
    "negative": _negative,
    "list": _list,
    "map": _map,
    "call": _call,
}
