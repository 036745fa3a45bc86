"""The rules for names of objects, with the error messages of the real API server."""

from __future__ import annotations

import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"


def subdomain_problem(name: str) -> str:
    """Describe what is wrong with a name; empty if nothing."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    if re.fullmatch(_SUBDOMAIN, name):
        return ""
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
        "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        f"'{_SUBDOMAIN}')"
    )


def label_problem(name: str) -> str:
    """Describe what is wrong with a name that is a DNS label; empty if nothing."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    if re.fullmatch(_LABEL, name):
        return ""
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
        f"end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
    )


def path_problem(name: str) -> str:
    """Describe what is wrong with a name that need only be a segment of a path (RBAC); empty if nothing."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    bad = [mark for mark in ("/", "%") if mark in name]
    return f"may not contain '{bad[0]}'" if bad else ""


NAME_PROBLEMS = {
    "subdomain": subdomain_problem,
    "label": label_problem,
    "path": path_problem,
}
