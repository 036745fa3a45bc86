"""A small Kubernetes client for tests, so that edl is not checked with its own code.

It speaks plain HTTP to the API server, one connection per thread, and finds resources by
discovery, so that custom resources work as soon as they exist. It has no cache: a test asserts the
state of the world, and `wait_until` polls for it; `watch` is for those that must miss nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import yaml

from tests.e2e.control_plane.kubeconfig import read_kubeconfig
from tests.e2e.control_plane.report import describe
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.worlds.waiting import PATIENCE

Object = dict[str, Any]
Objects = list[Object]
T = TypeVar("T")

FIELD_MANAGER = "edl-test"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_POLL_S = 0.05
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where PyYAML has it: a fifth of the time


class KubeError(ControlPlaneError):
    """The API server answered with an error status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason


class WaitTimeoutError(ControlPlaneError):
    """What a test waited for did not come; the message holds what was seen."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind of object lives."""

    prefix: str
    plural: str
    kind: str
    namespaced: bool

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        parts = [self.prefix]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace)]
        parts.append(self.plural)
        parts += [quote(part) for part in (name, subresource) if part]
        return "/".join(parts)


class Kube:
    """One identity on one API server. Objects are plain dicts; kinds are named as for kubectl."""

    def __init__(self, kubeconfig: Path, *, kubectl: Path | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.kubectl_path = kubectl
        self._access = read_kubeconfig(kubeconfig)
        self._local = threading.local()
        self._open: list[http.client.HTTPConnection] = []
        self._resources: dict[str, Resource] = {}

    # Objects

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        """One object; `KubeError` with code 404 if there is none."""
        return self.request("GET", self.resource(kind).path(namespace, name))

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """One object; None if there is none."""
        try:
            return self.get(kind, name, namespace)
        except KubeError as error:
            if error.code == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None = None, *, labels: str = "", fields: str = "") -> Objects:
        """All objects of a kind; of every namespace where none is named."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        path = self.resource(kind).path(namespace)
        items: Objects = self.request("GET", path, query=query)["items"]
        return items

    def list_at(self, kind: str) -> tuple[Objects, str]:
        """All objects of a kind in every namespace, and the resourceVersion from which to watch them."""
        answer = self.request("GET", self.resource(kind).path(None))
        return answer["items"], str(answer["metadata"]["resourceVersion"])

    def watch(
        self, kind: str, *, since: str, seconds: int, opened: Callable[[Callable[[], None]], None]
    ) -> Iterator[tuple[str, Object]]:
        """The changes of all objects of a kind after a resourceVersion, for that many seconds: (type, object).

        Args:
            kind: as for kubectl; of every namespace.
            since: of a list, or of the last object seen.
            seconds: the server ends the stream after so many.
            opened: is given a function that ends the stream sooner, from any thread.

        Raises:
            KubeError: the server is away, or has forgotten what was that long ago (code 410).
        """
        query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(seconds)}
        connection = self._dial()
        try:
            connection.request("GET", self._target(self.resource(kind).path(None), query), headers=self._headers())
            opened(lambda: _hang_up(connection))
            answer = connection.getresponse()
            if answer.status >= 400:
                raise KubeError(answer.status, "WatchRefused", answer.read().decode(errors="replace"))
            while line := answer.readline():
                document = json.loads(line)
                if document["type"] == "ERROR":
                    status = document["object"]
                    raise KubeError(status.get("code", 0), status.get("reason", ""), status.get("message", ""))
                yield document["type"], document["object"]
        except (http.client.HTTPException, OSError) as error:
            raise KubeError(0, "Unreachable", f"watching {kind}: {error!r}") from error
        finally:
            connection.close()

    def follow_log(self, name: str, namespace: str = "default") -> Iterator[str]:
        """The lines of the log of a pod, each as soon as it is there, until its container has ended.

        Raises:
            KubeError: what the server answers.
        """
        path = f"{self.resource('pods').path(namespace, name)}/log"
        with contextlib.closing(self._dial()) as connection:
            connection.request("GET", self._target(path, {"follow": "true"}), headers=self._headers())
            answer = connection.getresponse()
            if answer.status >= 400:
                raise KubeError(answer.status, "LogRefused", answer.read().decode(errors="replace"))
            while line := answer.readline():
                yield line.decode()

    def create(self, body: Object, namespace: str = "default") -> Object:
        """Create an object; the namespace of its metadata goes before the argument."""
        resource = self.resource(_kind_of(body))
        where = body["metadata"].get("namespace", namespace)
        made = self.request("POST", resource.path(where), body=body)
        self._await_admission(resource, made)
        return made

    def apply(self, what: Object | str | Path, namespace: str = "default") -> Objects:
        """Server-side apply, by force, of a dict, of YAML text or of a YAML file."""
        if isinstance(what, Path):
            what = what.read_text()
        bodies = [what] if isinstance(what, dict) else list(yaml.load_all(what, Loader=_LOADER))
        return [self._apply(body, namespace) for body in bodies if body]

    def _apply(self, body: Object, namespace: str) -> Object:
        resource = self.resource(_kind_of(body))
        where = body["metadata"].get("namespace", namespace)
        applied = self.request(
            "PATCH",
            resource.path(where, body["metadata"]["name"]),
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=body,
            content_type="application/apply-patch+yaml",
        )
        self._await_admission(resource, applied)
        return applied

    def _await_admission(self, resource: Resource, made: Object) -> None:
        if resource.kind == "PriorityClass":
            name = made["metadata"]["name"]
            self.wait_until(lambda: self._is_known(name), 10, f"pods may name the PriorityClass {name}")

    def _is_known(self, class_name: str) -> bool:
        """Admission reads a copy of the PriorityClasses, which follows the server's store a moment later."""
        spec = {"priorityClassName": class_name, "containers": [{"name": "main", "image": "none"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}, "spec": spec}
        try:
            self.request("POST", self.resource("pods").path("default"), query={"dryRun": "All"}, body=pod)
        except KubeError as error:
            return "no PriorityClass with name" not in str(error)
        return True

    def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Objects,
        namespace: str = "default",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """A merge patch (a dict) or a JSON patch (a list)."""
        form = "json-patch" if isinstance(patch, list) else "merge-patch"
        return self.request(
            "PATCH",
            self.resource(kind).path(namespace, name, subresource),
            query={"dryRun": "All"} if dry_run else None,
            body=patch,
            content_type=f"application/{form}+json",
        )

    def annotate(self, kind: str, name: str, namespace: str = "default", **values: str | None) -> Object:
        """Set `edl.test/<key>` annotations; underscores read as dashes, None removes."""
        said = {f"edl.test/{key.replace('_', '-')}": value for key, value in values.items()}
        return self.patch(kind, name, {"metadata": {"annotations": said}}, namespace)

    def scale(self, kind: str, name: str, replicas: int, namespace: str = "default") -> Object:
        """Set the replicas through the scale subresource."""
        patch = {"spec": {"replicas": replicas}}
        return self.patch(kind, name, patch, namespace, subresource="scale")

    def delete(self, kind: str, name: str, namespace: str = "default", *, grace_s: int | None = None) -> None:
        """Delete an object, if it exists."""
        query = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        try:
            self.request("DELETE", self.resource(kind).path(namespace, name), query=query)
        except KubeError as error:
            if error.code != 404:
                raise

    # Waiting

    def wait_until(self, predicate: Callable[[], T], timeout_s: float, what: str, *, poll_s: float = _POLL_S) -> T:
        """Poll until the predicate is truthy and return its value; `timeout_s` is multiplied by `PATIENCE`.

        An error of the API counts as not yet, so that a test may wait for an object to appear.

        Raises:
            WaitTimeoutError: with the last value or error, the pods, the nodes that are not
                ready, and the last events.
        """
        patience_s = timeout_s * PATIENCE
        deadline = time.monotonic() + patience_s
        while True:
            try:
                value = predicate()
                if value:
                    return value
                last: object = value
            except KubeError as error:
                last = error
            if time.monotonic() > deadline:
                seen = describe(self.list)
                raise WaitTimeoutError(f"after {patience_s:g} s not yet: {what}\nlast: {last!r}\n{seen}")
            time.sleep(poll_s)

    # Below the objects

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60, check: bool = True) -> str:
        """Run the built kubectl as this identity and return what it printed.

        Raises:
            ControlPlaneError: it ended with an error, unless `check` is false; the message holds what it said.
        """
        program = str(self.kubectl_path or "kubectl")
        home = str(self.kubeconfig.parent)
        done = subprocess.run(
            [program, "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin,
            env={**os.environ, "HOME": home},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            line = " ".join(arguments)
            raise ControlPlaneError(f"kubectl {line}: ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def resource(self, kind: str) -> Resource:
        """Find a resource by plural, singular, short name or kind, with or without `.group`."""
        if kind.lower() not in self._resources:
            self._resources = self._discover()
        try:
            return self._resources[kind.lower()]
        except KeyError:
            raise KubeError(404, "NotFound", f"the server has no resource {kind!r}") from None

    def _discover(self) -> dict[str, Resource]:
        found: dict[str, Resource] = {}
        for root in ("/api", "/apis"):
            for group in self.request("GET", root, accept=_DISCOVERY)["items"]:
                _add_group(found, root, group)
        return found

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        """One request; raises `KubeError` for a status of 400 or more."""
        data = None if body is None else json.dumps(body)
        headers = self._headers(accept, content_type)
        status, raw = self._exchange(method, self._target(path, query), data, headers)
        document: Object = json.loads(raw) if raw[:1] == b"{" else {"message": raw.decode()}
        if status >= 400:
            raise KubeError(status, document.get("reason", ""), document.get("message", ""))
        return document

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        text = urlencode({key: value for key, value in (query or {}).items() if value})
        return f"{self._access.base_path}{path}" + (f"?{text}" if text else "")

    def _headers(self, accept: str = "application/json", content_type: str = "application/json") -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": content_type}
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"
        return headers

    def _exchange(self, method: str, target: str, data: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send on this thread's connection; once more where the server had closed an idle one."""
        for attempt in (1, 2):
            connection = self._connection()
            try:
                connection.request(method, target, body=data, headers=dict(headers))
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                if attempt == 2 or isinstance(error, ConnectionRefusedError):
                    raise KubeError(0, "Unreachable", f"{method} {target}: {error!r}") from error
        raise AssertionError("unreachable")

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._dial()
            self._open.append(connection)
        return connection

    def _dial(self) -> http.client.HTTPConnection:
        where, context = (self._access.host, self._access.port), self._access.context
        if context:
            return http.client.HTTPSConnection(*where, context=context, timeout=60)
        return http.client.HTTPConnection(*where, timeout=60)

    def close(self) -> None:
        """Close the connections of every thread."""
        for connection in self._open:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """End a connection that another thread reads from.

    Not by the socket's own `shutdown`: that of a TLS socket ends the decryption first, and the reader would be handed
    what is still on its way as it came over the wire.
    """
    sock: socket.socket | None = connection.sock
    with contextlib.suppress(OSError):
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _kind_of(body: Object) -> str:
    group = body["apiVersion"].rpartition("/")[0]
    return f"{body['kind']}.{group}" if group else str(body["kind"])


def _add_group(found: dict[str, Resource], root: str, group: Object) -> None:
    """Add a group's resources under every name; the first group and version to claim one keeps it."""
    name = group["metadata"].get("name", "")
    for version in group["versions"]:
        prefix = f"{root}/{name}/{version['version']}" if name else f"{root}/{version['version']}"
        for document in version.get("resources", ()):
            kind = document["responseKind"]["kind"]
            resource = Resource(prefix, document["resource"], kind, document["scope"] == "Namespaced")
            names = [document["resource"], document.get("singularResource") or kind, kind]
            for alias in (*names, *document.get("shortNames", ())):
                found.setdefault(alias.lower(), resource)
                found.setdefault(f"{alias.lower()}.{name}", resource)
