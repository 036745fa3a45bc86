"""What the rows of several kinds are made of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from edl.sandbox.apiserver.kinds.ages import age
from edl.sandbox.apiserver.kinds.kind import Column, Object, dig

NONE = "<none>"
TEMPLATE_COLUMNS = (Column("Containers", priority=1), Column("Images", priority=1), Column("Selector", priority=1))


def wide(*names: str) -> tuple[Column, ...]:
    """Mark columns that only `-o wide` shows."""
    return tuple(Column(name, priority=1) for name in names)


def plain(*names: str) -> tuple[Column, ...]:
    """Make columns of text."""
    return tuple(Column(name) for name in names)


def whole(*names: str) -> tuple[Column, ...]:
    """Make columns of whole numbers."""
    return tuple(Column(name, "integer") for name in names)


def head(value: Object, now: datetime) -> tuple[str, str]:
    """The name and the age of an object."""
    metadata = value["metadata"]
    return metadata["name"], age(metadata.get("creationTimestamp"), now)


def format_labels(labels: Object | None) -> str:
    """Format labels: `a=1,b=2`, sorted; `<none>` without any."""
    return ",".join(f"{key}={text}" for key, text in sorted((labels or {}).items())) or NONE


def format_selector(selector: Object | None) -> str:
    """Format a label selector as in a query."""
    terms = [f"{key}={text}" for key, text in sorted(dig(selector, "matchLabels", default={}).items())]
    for one in dig(selector, "matchExpressions", default=()):
        key, values = one.get("key", ""), ",".join(sorted(one.get("values", ())))
        form = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(form.get(one.get("operator", ""), key))
    return ",".join(terms) or NONE


def template_cells(value: Object) -> tuple[str, str]:
    """The names and the images of the containers of a pod template."""
    containers = dig(value, "spec", "template", "spec", "containers", default=())
    names = ",".join(str(one.get("name", "")) for one in containers)
    return names, ",".join(str(one.get("image", "")) for one in containers)


def at_most_three(texts: Sequence[str]) -> str:
    """The first three texts, and how many more there are."""
    shown = ",".join(texts[:3]) or NONE
    return f"{shown} + {len(texts) - 3} more..." if len(texts) > 3 else shown
