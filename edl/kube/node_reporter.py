"""Events on nodes that new trainers avoid, as `kubectl describe node` shows them.

Each time that a node is avoided is one event: its name contains a hash of the node and of the end of that time, so a
controller that restarts in between counts the same object. Nothing is read back from it, and nothing depends on it.
Events of nodes are in namespace `default`, and name the node as its UID, as those of a kubelet do.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from edl.clock import Clock
from edl.errors import EdlError
from edl.kube.client.api_errors import AlreadyExistsError
from edl.kube.client.session import ApiSession
from edl.kube.events import COMPONENT
from edl.model.actions import EventKind
from edl.model.cluster import AvoidedNode
from edl.model.times import text_of
from edl.model.units import count, listed
from edl.observability.logs import log_event

REASON = "AvoidedByTraining"
LONGEST_S = 2.0
"""The longest duration of a report, so that slow answers delay nothing else; the next report continues it."""
NAMED_JOBS = 3

_NAMESPACE = "default"
_EVENTS = f"/api/v1/namespaces/{_NAMESPACE}/events"
_log = logging.getLogger(__name__)


class ApiNodeReporter:
    """Implements `ports.NodeReporter`.

    Args:
        session: the API server.
        clock: for the times of events.
    """

    def __init__(self, session: ApiSession, clock: Clock) -> None:
        self._session, self._clock = session, clock
        self._reported: frozenset[tuple[str, float]] = frozenset()

    async def report(self, avoided: Sequence[AvoidedNode]) -> None:
        """Create the event of each node that is avoided anew."""
        now = {(node.name, node.until_s): node for node in avoided if not node.spared}
        self._reported &= now.keys()
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_S):
                for key in sorted(now.keys() - self._reported):
                    await self._create(now[key])
                    self._reported |= {key}

    async def _create(self, node: AvoidedNode) -> None:
        try:
            await self._session.post(_EVENTS, event_of_node(node, self._clock.now_s()), timeout_s=LONGEST_S)
        except AlreadyExistsError:
            return
        except EdlError as error:
            log_event(_log, logging.WARNING, "event of node not written", node=node.name, err=str(error))


def event_of_node(node: AvoidedNode, now_s: float) -> dict[str, Any]:
    """Return the core/v1 Event."""
    digest = hashlib.sha256(f"{node.name} {node.until_s}".encode()).hexdigest()[:16]
    at = text_of(now_s)
    named = [str(key) for key in node.jobs[:NAMED_JOBS]]
    if more := node.jobs[NAMED_JOBS:]:
        named.append(count(len(more), "other job"))
    of = f" of namespace {next(iter(node.namespaces))}" if len(node.namespaces) == 1 else ""
    message = (
        f"trainers of {listed(named)} failed or hung here and did well on other nodes; edl starts no trainers{of}"
        f" here until {text_of(node.until_s)}, and then one. Serving pods are not affected."
    )
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{node.name}.{digest}", "namespace": _NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.name},
        "type": EventKind.WARNING.value,
        "reason": REASON,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
