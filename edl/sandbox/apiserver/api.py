"""One request, executed: which kind, which verb, and the response. No sockets here; `server.py` has them.

Everything but a watch is executed at once, so a caller in the same process may use this module without a port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.conversion import from_stored
from edl.sandbox.apiserver.deletion import Deleter
from edl.sandbox.apiserver.errors import ApiError, bad_request, method_not_allowed, no_such_path, not_found
from edl.sandbox.apiserver.http.paths import fixed_answer
from edl.sandbox.apiserver.http.request import Request, Target
from edl.sandbox.apiserver.http.response import Accepted, Response, accepted, answer, answer_error, as_yaml
from edl.sandbox.apiserver.http.tables import partial, partial_list, table
from edl.sandbox.apiserver.kinds.groups.rights import REVIEWS
from edl.sandbox.apiserver.kinds.kind import Kind, Object
from edl.sandbox.apiserver.listing import Selection, read_page, values_of
from edl.sandbox.apiserver.patching import Patcher, scale_types
from edl.sandbox.apiserver.policies import Policies
from edl.sandbox.apiserver.quotas import refresh_quotas
from edl.sandbox.apiserver.registry import DEFINITIONS
from edl.sandbox.apiserver.reviews import review
from edl.sandbox.apiserver.rights import require
from edl.sandbox.apiserver.storage.store import Entry, Key, TooOldError
from edl.sandbox.apiserver.subresources import bind, evict, issue_token, scale_of, with_replicas
from edl.sandbox.apiserver.system import establish, furnish_namespace
from edl.sandbox.apiserver.watching import Watch
from edl.sandbox.apiserver.writing import Write, Writer

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_REVIEWS = frozenset(kind.name for kind in REVIEWS)


class Api:
    """Executes requests on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._deleter = Deleter(cluster)
        self._writer = Writer(cluster, self._deleter, Policies(cluster).admit)
        self._patcher = Patcher(cluster, self._writer)

    def handle(self, request: Request, *, behind: int = 0) -> Response:
        """Execute a request; an error becomes its Status.

        Args:
            request: the request.
            behind: a get or a list is answered with the state of so many versions ago, if it is still known.
        """
        try:
            if behind and request.verb in {"get", "list"}:
                request = self._aged(request, behind)
            response = self._handle(request)
            target = request.target
            if target is not None and target.namespace and request.verb in _WRITES and not request.is_dry_run:
                refresh_quotas(self.cluster, target.namespace)
        except ApiError as error:
            response = answer_error(error)
        return response

    def _handle(self, request: Request) -> Response:
        require(self.cluster, request)
        form = accepted(request.headers)
        if (fixed := fixed_answer(self.cluster.registry, request, form)) is not None:
            return as_yaml(fixed) if form.form == "yaml" and fixed.content_type == "application/json" else fixed
        target = request.target
        kind = None if target is None else self.cluster.registry.find(target.group, target.version, target.plural)
        if target is None or kind is None:
            raise no_such_path()
        response = self._resource(request, kind, target, form)
        return as_yaml(response) if form.form == "yaml" and response.stream is None else response

    def _resource(self, request: Request, kind: Kind, target: Target, form: Accepted) -> Response:
        if target.namespace and not kind.namespaced:
            raise no_such_path()
        if target.subresource:
            return self._subresource(request, kind, target, form)
        verb = request.verb
        if (verb == "create" and target.name) or (verb in {"update", "patch"} and not target.name):
            raise method_not_allowed()
        if verb not in kind.verbs and not (verb == "watch" and "watch" in kind.verbs):
            raise method_not_allowed()
        match verb:
            case "list":
                return self._list(request, kind, target, form)
            case "watch":
                selection = Selection(kind, target.namespace, request)
                watch = Watch(self.cluster, selection, request, form)
                return Response(stream=watch.lines())
            case "get":
                return self._one(kind, self._read(kind, (target.namespace, target.name), request), form, request)
            case "create":
                return self._create(request, kind, target, form)
            case "deletecollection":
                return self._delete_collection(request, kind, target)
            case "delete":
                return self._delete(request, kind, target)
        return self._change(request, kind, target, form)

    # Reading

    def _aged(self, request: Request, behind: int) -> Request:
        """Change a request to one about an earlier version (fault `Stale`)."""
        version = max(self.cluster.store.version - behind, 1)
        return replace(request, as_of=version)

    def _read(self, kind: Kind, key: Key, request: Request) -> Entry:
        if request.as_of is None:
            return self.cluster.entry(kind, key)
        try:
            return dict(self.cluster.store.entries(kind.resource, at=request.as_of))[key]
        except TooOldError:
            return self.cluster.entry(kind, key)
        except KeyError:
            raise not_found(kind.plural, kind.group, key[1]) from None

    def _list(self, request: Request, kind: Kind, target: Target, form: Accepted) -> Response:
        page = read_page(self.cluster, Selection(kind, target.namespace, request), request)
        stored = values_of(page.entries)
        if form.as_kind == "Table":
            include = request.query.get("includeObject", "Metadata")
            return answer(table(kind, stored, page.metadata, self.cluster.now(), include))
        if form.as_kind == "PartialObjectMetadataList":
            return answer(partial_list(stored, page.metadata))
        return _list_answer(kind, page.entries, page.metadata)

    def _one(self, kind: Kind, entry: Entry, form: Accepted, request: Request, code: int = 200) -> Response:
        metadata = {"resourceVersion": entry.value["metadata"].get("resourceVersion", "")}
        if form.as_kind == "Table":
            include = request.query.get("includeObject", "Metadata")
            return answer(table(kind, [entry.value], metadata, self.cluster.now(), include), code)
        shown = from_stored(kind, entry.value)
        if form.as_kind == "PartialObjectMetadata":
            return answer(partial(shown), code)
        return Response(code, entry.raw) if not kind.stored_as else answer(shown, code)

    # Writing

    def _create(self, request: Request, kind: Kind, target: Target, form: Accepted) -> Response:
        body = request.decoded(kind.name, kind.type_name)
        if kind.name in _REVIEWS:
            return answer(review(self.cluster, kind, body, request), 201)
        if kind.name == "Binding":
            key = (target.namespace, str((body.get("metadata") or {}).get("name", "")))
            pods = self.cluster.registry.find("", "v1", "pods")
            if pods is None:
                raise no_such_path()
            return answer(bind(self.cluster, pods, key, body, dry_run=request.is_dry_run), 201)
        write = Write(request, kind, (target.namespace, target.name))
        entry = self._patcher.create(write, self._writer.decode(write, body))
        self._follow(request, kind, entry)
        return _warned(self._one(kind, entry, form, request, 201), write.warnings)

    def _change(self, request: Request, kind: Kind, target: Target, form: Accepted) -> Response:
        write = Write(request, kind, (target.namespace, target.name), target.subresource)
        entry, created = self._patcher.change(write)
        self._follow(request, kind, entry)
        return _warned(self._one(kind, entry, form, request, 201 if created else 200), write.warnings)

    def _follow(self, request: Request, kind: Kind, entry: Entry) -> None:
        """Do what the controllers of a real cluster do at once after a write."""
        if request.is_dry_run:
            return
        if kind.qualified == "namespaces":
            furnish_namespace(self.cluster, entry.value)
        elif kind.qualified == DEFINITIONS:
            establish(self.cluster, entry.value)

    def _delete(self, request: Request, kind: Kind, target: Target) -> Response:
        options = self._deleter.options(request)
        key = (target.namespace, target.name)
        entry, gone = self._deleter.delete(kind, key, options, dry_run=request.is_dry_run)
        metadata = entry.value["metadata"]
        if not gone or kind.qualified == "pods":
            return answer(from_stored(kind, entry.value))
        details = {"name": target.name, "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
        return answer(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": {name: value for name, value in details.items() if value},
            }
        )

    def _delete_collection(self, request: Request, kind: Kind, target: Target) -> Response:
        options = self._deleter.options(request)
        page = read_page(self.cluster, Selection(kind, target.namespace, request), request)
        for entry in page.entries:
            metadata = entry.value["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            if self.cluster.store.get(kind.resource, key) is not None:
                self._deleter.delete(kind, key, options, dry_run=request.is_dry_run)
        return _list_answer(kind, page.entries, page.metadata)

    # Subresources

    def _subresource(self, request: Request, kind: Kind, target: Target, form: Accepted) -> Response:
        key, verb, name = (target.namespace, target.name), request.verb, target.subresource
        if (name == "status" and kind.has_status) or (name == "resize" and name in kind.subresources):
            return self._part(request, kind, target, form)
        if name == "scale" and kind.scale is not None:
            return self._scale(request, kind, target)
        if name == "finalize" and kind.qualified == "namespaces" and verb == "update":
            return answer(self.cluster.entry(kind, key).value)
        if name not in kind.subresources:
            raise no_such_path()
        if verb != "create":
            raise method_not_allowed()
        match name:
            case "binding":
                body = request.decoded("Binding", "io.k8s.api.core.v1.Binding")
                return answer(bind(self.cluster, kind, key, body, dry_run=request.is_dry_run), 201)
            case "eviction":
                body = request.decoded("Eviction", "io.k8s.api.policy.v1.Eviction") if request.body else {}
                detail = evict(self.cluster, self._deleter, kind, key, body, dry_run=request.is_dry_run)
                return answer(detail, 201)
            case "token":
                return answer(issue_token(self.cluster, kind, key, request), 201)
        raise method_not_allowed()

    def _part(self, request: Request, kind: Kind, target: Target, form: Accepted) -> Response:
        match request.verb:
            case "get":
                return self._one(kind, self.cluster.entry(kind, (target.namespace, target.name)), form, request)
            case "update" | "patch":
                return self._change(request, kind, target, form)
        raise method_not_allowed()

    def _scale(self, request: Request, kind: Kind, target: Target) -> Response:
        key = (target.namespace, target.name)
        entry = self.cluster.entry(kind, key)
        if request.verb == "get":
            return answer(scale_of(kind, entry.value))
        if request.verb not in {"update", "patch"}:
            raise method_not_allowed()
        scale = self._patcher.plain(request, scale_of(kind, entry.value))
        scale_types(request, scale)
        if not isinstance(scale, dict):
            raise bad_request("the object provided is unrecognized (must be of type Scale)")
        write = Write(request, kind, key, is_scale=True)
        changed = self._patcher.replace(write, entry, with_replicas(kind, entry.value, scale))
        return answer(scale_of(kind, changed.value))


def _list_answer(kind: Kind, entries: Sequence[Entry], metadata: Object) -> Response:
    """Join encoded objects to the answer of a list."""
    head: Any = {"kind": kind.list_kind or f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
    if kind.stored_as:
        return answer({**head, "items": [from_stored(kind, entry.value) for entry in entries]})
    start = answer(head).body[:-1]
    return Response(body=b"".join([start, b',"items":[', b",".join(entry.raw for entry in entries), b"]}"]))


def _warned(response: Response, warnings: Sequence[str]) -> Response:
    if warnings:
        response.headers["Warning"] = ", ".join(f'299 - "{text}"'.replace("\\", "") for text in warnings)
    return response
