"""The expressions by which classes and claims choose devices.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/ (selectors)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from time import thread_time
from typing import Any

from edl.kube.expressions import PYTHON_FUNCTIONS, CelError, Evaluator
from edl.kube.translate.devices.apart import Apart
from edl.printable import one_line

_DOMAIN = re.compile(r"""(attributes|capacity)\s*\[\s*(["'])([^"'\\]{1,253})\2\s*\]""")
_COSTLY = re.compile(
    r"\b(all|exists|exists_one|existsOne|map|filter|transformList|transformMap|transformMapEntry"
    r"|replace|join|format|quote)(?:\s|//[^\n]*\n)*\("
)
"""Functions that look through lists, or whose text is a multiple of what they are given. A comment may follow."""
_BIND = re.compile(r"\bbind(?:\s|//[^\n]*\n)*\(")
_KEEPS = re.compile(rf"\b({'|'.join(PYTHON_FUNCTIONS)})\b")
"""Functions for which the library keeps memory."""
MAX_LENGTH = 2048
_LONGEST, _KEPT = 120, 512
_EVALUATOR = Evaluator(("device",))
APART = Apart()


class SelectorError(Exception):
    """An expression has no truth value for a device; kube-scheduler does not place the pod then."""


def is_chosen(expression: str, device: Mapping[str, Any]) -> bool:
    """Return True if an expression chooses a device.

    Args:
        expression: in CEL.
        device: `driver`, `attributes` and `capacity`, the latter two by domain and name.

    Raises:
        SelectorError: the expression cannot be read, or has no truth value.
    """
    given = device
    for kind, domain in _domains(expression):
        if domain not in given[kind]:  # then it is empty
            given = {**given, kind: {domain: {}, **given[kind]}}
    try:
        if _KEEPS.search(expression):
            value = APART.evaluate(expression, {"device": given})
        else:
            value = _EVALUATOR.evaluate(expression, _EVALUATOR.given({"device": given}))
    except CelError as error:
        raise SelectorError(f"selector {short(expression)}: {error}") from None
    if not isinstance(value, bool):
        raise SelectorError(f"selector {short(expression)} is not true or false: {short(str(value))}")
    return value


def spent_s() -> float:
    """CPU seconds spent so far, by this thread and by the child process that evaluates for it."""
    return thread_time() + APART.spent_s


@lru_cache(maxsize=_KEPT)
def _domains(expression: str) -> tuple[tuple[str, str], ...]:
    """The domains of attributes and capacities that an expression reads.

    Raises:
        SelectorError: it may take time or memory that nobody bounds.
    """
    check_bounds(expression)
    return tuple((kind, domain) for kind, _, domain in _DOMAIN.findall(expression))


def check_bounds(expression: str) -> None:
    """Refuse an expression that may take time or memory that nobody bounds.

    Raises:
        SelectorError: it may.
    """
    if len(expression) > MAX_LENGTH:
        raise SelectorError(
            f"selector {short(expression)} has {len(expression)} characters, and edl evaluates at most {MAX_LENGTH}"
        )
    if found := _COSTLY.search(expression):
        raise SelectorError(f"selector {short(expression)}: edl evaluates no {found[1]}()")
    if "+" in expression and _BIND.search(expression):  # each sum may be twice as long as the one before
        raise SelectorError(f"selector {short(expression)}: edl evaluates no bind() with a sum")


def short(text: str) -> str:
    """The text as a message shows it."""
    return one_line(text, _LONGEST)
