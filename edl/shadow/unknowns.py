"""What edl does not understand of a cluster: kinds of owners, admission, schedulers, missing rights.

The cache of the controller leaves out what no decision reads, so the pods are read once for each report, as JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

from edl.errors import EdlError, PermanentError
from edl.kube.client.api_errors import RefusedError
from edl.kube.client.session import ApiSession
from edl.kube.mirror.watched import UNFINISHED
from edl.kube.translate.ownership import TRAINING_JOB, WORKLOAD_OWNERS
from edl.model.jobs import Job
from edl.printable import one_line, printable
from edl.shadow.document import Unknown

Object = dict[str, Any]

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_ADMISSION_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies")
_SERVING_OWNERS = {"ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node", TRAINING_JOB}
"""Kinds whose pods edl counts as serving or system pods, or as its own."""
_SEEN = {"*", "*/*", "pods", "pods/*", "jobs", "trainingjobs", "rayclusters", "pytorchjobs"}
_PAGE = 500
_LONGEST = 300
_MEANINGS = {403: "no right to read it", 404: "the API server has no such resource"}


async def look(
    session: ApiSession, unread: Mapping[str, int], set_aside: list[str], jobs: tuple[Job, ...]
) -> Unknown:
    """Collect what is not understood now.

    Args:
        session: the API server.
        unread: path of a collection that the cache cannot read -> 403 or 404.
        set_aside: a line for each object that the cache leaves out.
        jobs: the jobs of the snapshot.
    """
    found = Unknown(
        unreadable={path: _MEANINGS.get(code, f"HTTP {code}") for path, code in unread.items()},
        set_aside=[one_line(line, _LONGEST) for line in set_aside],
        refused_workloads={str(job.key): one_line(job.problem, _LONGEST) for job in jobs if job.problem},
    )
    try:
        await _count_pods(session, found)
    except EdlError as error:
        found.unreadable["/api/v1/pods"] = _why(error)
    for kind in _ADMISSION_KINDS:
        path = f"{ADMISSION}/{kind}"
        try:
            found.admission += [
                printable(f"{kind} {(one.get('metadata') or {}).get('name')}")
                async for one in _items(session, path)
                if _sees_pods(one)
            ]
        except EdlError as error:
            found.unreadable[path] = _why(error)
    return found


async def _count_pods(session: ApiSession, found: Unknown) -> None:
    """Count the pods with an owner or a scheduler that edl does not know.

    Raises:
        TemporaryError, PermanentError: the pods cannot be read.
    """
    kinds: Counter[str] = Counter()
    schedulers: Counter[str] = Counter()
    async for pod in _items(session, "/api/v1/pods", {"fieldSelector": UNFINISHED}):
        if kind := _unknown_owner(pod):
            kinds[kind] += 1
        if (name := (pod.get("spec") or {}).get("schedulerName") or "") not in {"", "default-scheduler"}:
            schedulers[printable(name)] += 1
    found.kinds = dict(sorted(kinds.items()))
    found.schedulers = dict(sorted(schedulers.items()))


def _why(error: EdlError) -> str:
    meaning = _MEANINGS.get(error.code) if isinstance(error, RefusedError) else None
    return meaning or one_line(str(error), _LONGEST)


async def _items(session: ApiSession, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[Object]:
    """The objects of a collection, page by page.

    Raises:
        TemporaryError, PermanentError: a page cannot be read.
    """
    token = ""
    while True:
        raw = await session.list(path, params=params, limit=_PAGE, continue_=token)
        page = await asyncio.to_thread(json.loads, raw)
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise PermanentError(f"{path}: the answer is no list")
        for item in page["items"]:
            yield item
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return


def _unknown_owner(pod: Object) -> str:
    """The kind of the controller of a pod, if edl does not know what it is; else empty."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), None)
    if owner is None or owner.get("kind") in _SERVING_OWNERS:
        return ""
    if (owner.get("apiVersion") or "", owner.get("kind") or "") in WORKLOAD_OWNERS:
        return ""
    return printable(f"{owner.get('apiVersion')} {owner.get('kind')}")


def _sees_pods(configuration: Object) -> bool:
    """True if a webhook or policy is called for pods, or for a kind that edl resizes."""
    rules = [rule for hook in configuration.get("webhooks") or () for rule in hook.get("rules") or ()]
    rules += ((configuration.get("spec") or {}).get("matchConstraints") or {}).get("resourceRules") or ()
    return any(_SEEN & set(rule.get("resources") or ()) for rule in rules)
