"""Compares two views, so that an open page is sent only what has changed."""

from __future__ import annotations

from collections.abc import Mapping

from edl.dashboard.view import Body, View


def differences(before: View, after: View) -> Body | None:
    """The message with everything that has changed between two views; None if nothing has.

    `nodes` and `jobs` hold the values that are new or different under `set` and the names that are gone under `gone`;
    `cluster` is the new value. A section that did not change is missing.
    """
    message: Body = {}
    for name, old, new in (("nodes", before.nodes, after.nodes), ("jobs", before.jobs, after.jobs)):
        if change := _section(old, new):
            message[name] = change
    if before.cluster != after.cluster:
        message["cluster"] = after.cluster
    return message or None


def _section(old: Mapping[str, Body], new: Mapping[str, Body]) -> Body:
    changed = {key: value for key, value in new.items() if old.get(key) != value}
    gone = sorted(old.keys() - new.keys())
    return {**({"set": changed} if changed else {}), **({"gone": gone} if gone else {})}
