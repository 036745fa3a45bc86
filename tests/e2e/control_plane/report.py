"""Describes a cluster, for the message of a test that timed out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.control_plane.versions import ControlPlaneError

_CHATTER = re.compile(r'"msg":"Syncing lease"|"Caches are synced"|"Waiting for caches to sync"')
_TAIL_BYTES = 200_000
_PODS = 40
_EVENTS = 15


def describe(fetch: Callable[[str], list[dict[str, Any]]]) -> str:
    """The pods, the nodes that are not ready and the last events; what cannot be had is named."""
    parts = []
    for kind, render in (("nodes", _nodes), ("pods", _pods), ("events", _events)):
        try:
            parts.append(f"{kind}: {render(fetch(kind))}")
        except ControlPlaneError as error:
            parts.append(f"{kind}: {error}")
    return "\n".join(parts)


def tail_logs(workdir: Path, lines: int = 15) -> str:
    """The end of each process's log."""
    parts = []
    for path in sorted((workdir / "logs").glob("*.log")):
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = log.read().decode(errors="replace").splitlines()
        last = [line for line in text if not _CHATTER.search(line)][-lines:]
        parts.append(f"--- {path}\n" + "\n".join(line[:400] for line in last))
    return "\n".join(parts)


def is_ready(node: dict[str, Any]) -> bool:
    """Whether a node is Ready and free of the taints that keep pods off a fresh or lost node."""
    taints = node["spec"].get("taints") or ()
    if any(taint["key"].startswith("node.kubernetes.io/") for taint in taints):
        return False
    conditions = node["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _nodes(items: list[dict[str, Any]]) -> str:
    bad = [node["metadata"]["name"] for node in items if not is_ready(node)]
    return f"{len(items)}, not ready: {', '.join(bad) or 'none'}"


def _pods(items: list[dict[str, Any]]) -> str:
    counts = Counter(_state(pod) for pod in items)
    summary = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    lines = [
        f"  {pod['metadata']['namespace']}/{pod['metadata']['name']} {_state(pod)}"
        f" on {pod['spec'].get('nodeName', '-')}"
        for pod in items[:_PODS]
    ]
    return "\n".join([summary or "none", *lines])


def _state(pod: dict[str, Any]) -> str:
    phase = pod["status"].get("phase", "?")
    return f"{phase}/Terminating" if pod["metadata"].get("deletionTimestamp") else str(phase)


def _events(items: list[dict[str, Any]]) -> str:
    items.sort(key=lambda event: event["metadata"]["creationTimestamp"])
    lines = [
        f"  {event['involvedObject'].get('kind')}/{event['involvedObject'].get('name')}"
        f" {event.get('reason')}: {event.get('message')}"
        for event in items[-_EVENTS:]
    ]
    return "\n".join(["", *lines])
