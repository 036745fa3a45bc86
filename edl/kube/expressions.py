"""Expressions in CEL, with the functions of Kubernetes for quantities, versions and lists, by Google's library.

A quantity is a mapping with one exact number, and a version is text; so both compare as Kubernetes compares them. The
words of an error are those that cel-go has, since users look for what the API server and kube-scheduler say.

Source: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from edl.errors import ConfigError
from edl.model.quantity import exact_quantity
from edl.printable import printable, shortened

_KEPT = 512
_LONGEST = 160
_AMOUNT = "quantity"
_VERSION = re.compile(r"(\d{1,15})\.(\d{1,15})\.(\d{1,15})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_NO_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WORDS = (
    (re.compile(r"^[A-Z_]+: "), ""),
    (re.compile(r'^Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (re.compile(r"^(No matching overloads found|Applying SELECT to non-message type).*"), "no such overload"),
    (re.compile(r"^Index error: index=(-?\d+).*"), r"index out of bounds: \1"),
    (re.compile(r"^divide by zero$"), "division by zero"),
)
"""Error messages of the library, with those of cel-go for the same errors."""

Quantity = Mapping[str, str]
MAPPING = "map<string, dyn>"
"""The type of a mapping, for `method`."""


class CelError(Exception):
    """An expression cannot be read, or has no value for its variables; the message says why."""


def quantity(text: str) -> Quantity:
    """Parse a quantity.

    Raises:
        ConfigError: the text is no quantity.
    """
    return {_AMOUNT: _exact(text)}


class Evaluator:
    """Evaluates expressions over some variables, and remembers those that it has read.

    Args:
        variables: their names.
        functions: besides those of CEL, of its libraries for optional values and texts, and of Kubernetes; see
            `method`.
    """

    def __init__(self, variables: Sequence[str], functions: Sequence[Any] = ()) -> None:
        self._environment = cel.NewEnv(
            variables=dict.fromkeys(variables, cel.Type.DYN),
            extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()],
            functions=[*_functions(), *functions],
        )
        self._compiled = lru_cache(maxsize=_KEPT)(self._compile)

    def given(self, variables: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the library's types are not exported
        """Translate variables for any number of expressions.

        Args:
            variables: by name: texts, numbers, lists and mappings; quantities as `quantity` gives them.
        """
        return self._environment.Activation(data=variables)

    def evaluate(self, text: str, given: Any) -> Any:  # noqa: ANN401 - an expression may have any value
        """The value of an expression.

        Args:
            text: the expression.
            given: from `given`.

        Raises:
            CelError: the expression cannot be read, or has no value.
        """
        try:
            value = self._compiled(text).eval(given)
            plain = value.plain_value()
            if plain is True or plain is False or value.type() != cel.Type.ERROR:
                return plain
            problem = str(plain)
        except CelError:
            raise
        except Exception as error:  # the library has no class of its own for errors
            problem = str(error)
        raise CelError(_short(problem))

    def _compile(self, text: str) -> Any:  # noqa: ANN401 - see above
        try:
            return self._environment.compile(text)
        except Exception as error:
            raise CelError(_short(str(error))) from None


def method(name: str, impl: Callable[..., Any], *kinds: str, result: str = "dyn") -> Any:  # noqa: ANN401 - passed on
    """Make a method that expressions can call.

    Args:
        name: of the method.
        impl: gets the object and the arguments.
        kinds: the types of the object and of the arguments.
        result: the type of what it returns.
    """
    overload = cel.Overload(
        f"{name}_of_{kinds[0]}", _type(result), list(map(_type, kinds)), is_member=True, impl=impl
    )
    return cel.FunctionDecl(name, [overload])


PYTHON_FUNCTIONS = (
    *("quantity", "isQuantity", "semver", "isSemver"),
    *("compareTo", "isLessThan", "isGreaterThan", "sum"),
)
"""The functions of Kubernetes whose arguments and results the library never frees."""


@lru_cache(maxsize=1)
def _functions() -> tuple[Any, ...]:
    text, number, truth, amount = cel.Type.STRING, cel.Type.INT, cel.Type.BOOL, _type("map<string, string>")
    return (
        _function("quantity", _quantity, amount, text),
        _function("isQuantity", _is_quantity, truth, text),
        _function("semver", _semver, text, text),
        _function("isSemver", lambda given: _VERSION.fullmatch(given) is not None, truth, text),
        _comparison("compareTo", _compare, number, amount, text),
        _comparison("isLessThan", lambda left, right: _compare(left, right) < 0, truth, amount, text),
        _comparison("isGreaterThan", lambda left, right: _compare(left, right) > 0, truth, amount, text),
        method("sum", sum, "list<dyn>"),
    )


def _type(name: str) -> Any:  # noqa: ANN401 - the library's types are not exported
    return cel.Type.DYN if name == "dyn" else cel.Type(name)


def _function(name: str, impl: Callable[..., Any], result: Any, kind: Any) -> Any:  # noqa: ANN401 - passed on
    return cel.FunctionDecl(name, [cel.Overload(f"{name}_text", result, [kind], is_member=False, impl=impl)])


def _comparison(name: str, impl: Callable[..., Any], result: Any, *kinds: Any) -> Any:  # noqa: ANN401 - passed on
    """Make a method that compares two values of one kind."""
    overloads = [
        cel.Overload(f"{name}_{place}", result, [kind, kind], is_member=True, impl=impl)
        for place, kind in enumerate(kinds)
    ]
    return cel.FunctionDecl(name, overloads)


@lru_cache(maxsize=_KEPT)
def _exact(text: str) -> str:
    """The value of a quantity, which may be negative here, as a fraction in text.

    Raises:
        ConfigError: the text is no quantity.
    """
    if re.match("-[0-9.]", text):
        return str(-exact_quantity(text[1:], "memory"))
    return str(exact_quantity(text, "memory"))


@lru_cache(maxsize=_KEPT)
def _fraction(text: str) -> Fraction:
    return Fraction(text)


def _quantity(text: str) -> Quantity:
    try:
        return quantity(text)
    except ConfigError:
        raise ValueError(_NO_QUANTITY) from None


def _is_quantity(text: str) -> bool:
    try:
        _exact(text)
    except ConfigError:
        return False
    return True


def _semver(text: str) -> str:
    if _VERSION.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no semantic version")
    return text


def _compare(left: Quantity | str, right: Quantity | str) -> int:
    first, second = _rank(left), _rank(right)
    return int(first > second) - int(first < second)


def _rank(value: Quantity | str) -> tuple[Any, ...]:
    """The order of quantities, and that of versions: a pre-release comes before its version."""
    if not isinstance(value, str):
        return (_fraction(value[_AMOUNT]),)
    found = _VERSION.fullmatch(value)
    if found is None:
        raise ValueError(f"{value!r} is no semantic version")
    *numbers, pre = found.groups()
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in (pre or "").split("."))
    return (*map(int, numbers), not pre, parts if pre else ())


def _short(text: str) -> str:
    found = " ".join(printable(text).split())
    for form, words in _WORDS:
        found = form.sub(words, found)
    return shortened(found, _LONGEST)
