"""Deleting objects: preconditions, grace periods, finalizers, propagation, and the emptying of namespaces.

Source: k8s.io/apiserver pkg/registry/rest/delete.go and the pod strategy; the namespace controller.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import bad_request, conflict, forbidden
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.ages import parse_time, timestamp
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.kinds.pods import FINISHED
from edl.sandbox.apiserver.registry import DEFINITIONS
from edl.sandbox.apiserver.storage.store import Entry, Key

_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class Deleter:
    """Deletes objects; see the module."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def options(self, request: Request) -> Object:
        """The DeleteOptions of a request: of its body, or of its parameters.

        Raises:
            ApiError: 400.
        """
        body = request.decoded("DeleteOptions", _OPTIONS) if request.body.strip() else None
        options: Object = dict(body) if isinstance(body, dict) else {}
        for name in ("propagationPolicy", "gracePeriodSeconds"):
            if name in request.query and name not in options:
                options[name] = request.number(name) if name.endswith("Seconds") else request.query[name]
        if (policy := options.get("propagationPolicy")) not in {None, "Background", "Foreground", "Orphan"}:
            raise bad_request(f'invalid propagationPolicy "{policy}": use Background, Foreground or Orphan')
        return options

    def delete(self, kind: Kind, key: Key, options: Object, *, dry_run: bool) -> tuple[Entry, bool]:
        """Delete an object, or mark it as being deleted.

        Returns:
            Its last state, and whether it is gone.

        Raises:
            ApiError: 403, 404 or 409.
        """
        cluster = self._cluster
        entry = cluster.entry(kind, key)
        self._require(kind, entry, options.get("preconditions") or {})
        if kind.qualified == "namespaces" and key[1] in _KEPT_NAMESPACES[:1] + _KEPT_NAMESPACES[1:3]:
            raise forbidden("namespaces", "", key[1], "this namespace may not be deleted")
        dry_run = dry_run or "All" in (options.get("dryRun") or ())
        finalizers = self._finalizers(kind, entry.value, options)
        grace = self._grace_s(kind, entry.value, options)
        if not finalizers and grace == 0 and kind.qualified != "namespaces":
            if dry_run:
                return entry, True
            if kind.qualified == "pods" and "deletionTimestamp" not in entry.value["metadata"]:
                # A watch sees each pod being deleted before it sees it gone.
                cluster.store.put(kind.resource, key, self._marked(entry.value, [], 0))
            return self._remove(kind, key), True
        marked = self._marked(entry.value, finalizers, grace)
        if kind.qualified == "namespaces":
            marked["status"] = {**marked.get("status", {}), "phase": "Terminating"}
        if dry_run or marked == entry.value:
            return entry, False
        entry = cluster.store.put(kind.resource, key, marked)
        if kind.qualified == "namespaces":
            self.empty_namespace(key[1])
            self._finish_namespaces()
        return entry, cluster.store.get(kind.resource, key) is None

    def finish_if_ready(self, kind: Kind, key: Key, entry: Entry) -> Entry:
        """Remove an object that is being deleted and that nothing holds back any more."""
        metadata = entry.value["metadata"]
        if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
            return entry
        if metadata.get("deletionGracePeriodSeconds", 0) > 0:
            return entry
        if kind.qualified == "namespaces" and (dig(entry.value, "spec", "finalizers") or self._content(key[1])):
            return entry
        return self._remove(kind, key)

    def empty_namespace(self, name: str) -> None:
        """Delete everything in a namespace, as the namespace controller does."""
        for resource, key in self._content(name):
            kind = self._cluster.registry.stored(resource)
            if kind is not None and self._cluster.store.get(resource, key) is not None:
                self.delete(kind, key, {}, dry_run=False)

    def _content(self, namespace: str) -> list[tuple[str, Key]]:
        return [(resource, key) for resource, key in self._cluster.store.all_keys() if key[0] == namespace]

    def _require(self, kind: Kind, entry: Entry, conditions: Object) -> None:
        metadata = entry.value["metadata"]
        detail = ""
        if (uid := conditions.get("uid")) is not None and uid != metadata["uid"]:
            detail = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated"
            )
        version = conditions.get("resourceVersion")
        if not detail and version is not None and version != metadata["resourceVersion"]:
            detail = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({metadata['resourceVersion']}). The object might have been modified"
            )
        if detail:
            raise conflict(kind.name, kind.group, metadata["name"], detail)

    @staticmethod
    def _finalizers(kind: Kind, value: Object, options: Object) -> list[str]:
        finalizers = list(value["metadata"].get("finalizers") or ())
        policy = options.get("propagationPolicy")
        if policy is None and options.get("orphanDependents") is not None:
            policy = "Orphan" if options["orphanDependents"] else "Background"
        if policy is None or kind.qualified == "namespaces":
            return finalizers
        wanted = {"Foreground": _FOREGROUND, "Orphan": _ORPHAN}.get(policy)
        finalizers = [one for one in finalizers if one not in {_FOREGROUND, _ORPHAN}]
        return [*finalizers, wanted] if wanted else finalizers

    @staticmethod
    def _grace_s(kind: Kind, value: Object, options: Object) -> int:
        """The grace period of a deletion in seconds; 0 for everything but a pod on a node."""
        if kind.qualified != "pods":
            return 0
        if not dig(value, "spec", "nodeName") or dig(value, "status", "phase") in FINISHED:
            return 0
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = value["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = dig(value, "spec", "terminationGracePeriodSeconds", default=30)
        return max(int(grace), 0)

    def _marked(self, value: Object, finalizers: list[str], grace_s: int) -> Object:
        metadata: dict[str, Any] = dict(value["metadata"])
        before = metadata.get("deletionGracePeriodSeconds")
        now = self._cluster.now()
        if not metadata.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace_s))
            metadata["deletionGracePeriodSeconds"] = grace_s
            if "generation" in metadata:
                metadata["generation"] += 1
        elif before is not None and grace_s < before:
            started = parse_time(metadata["deletionTimestamp"]) or now
            metadata["deletionTimestamp"] = timestamp(started + timedelta(seconds=grace_s - before))
            metadata["deletionGracePeriodSeconds"] = grace_s
        metadata.pop("finalizers", None)
        if finalizers:
            metadata["finalizers"] = finalizers
        return {**value, "metadata": metadata}

    def _remove(self, kind: Kind, key: Key) -> Entry:
        cluster = self._cluster
        if kind.qualified == DEFINITIONS:
            self._undefine(key[1])
        entry = cluster.store.remove(kind.resource, key)
        if key[0]:
            self._finish_namespaces()
        return entry

    def _undefine(self, name: str) -> None:
        """Delete the custom resources of a CustomResourceDefinition that is deleted."""
        for kind in self._cluster.registry.custom(name):
            for key in list(self._cluster.store.keys(kind.resource)):
                self.delete(kind, key, {}, dry_run=False)
        self._cluster.registry.undefine(name)

    def _finish_namespaces(self) -> None:
        """Remove the namespaces that are being deleted and are empty."""
        cluster = self._cluster
        for key, entry in cluster.store.entries("namespaces"):
            if entry.value["metadata"].get("deletionTimestamp") and not self._content(key[1]):
                if entry.value["metadata"].get("finalizers"):
                    continue
                cluster.store.remove("namespaces", key)
