"""The names of Services and of the pods behind them, in the file that `network_hook.py` reads.

A name leads to the addresses of pods: there is no proxy with an address of its own. If a Service changes a port, the
file says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edl.sandbox.objects import is_finished, is_true, labels_of, name_of, namespace_of

Object = dict[str, Any]
_NO_ENTRY: Object = {}


def service_names(services: Iterable[Object], pods: Iterable[Object]) -> Object:
    """NAMESPACE/SERVICE -> `addresses` of its pods, `hosts` by their names, and the `ports` that it changes."""
    by_namespace: dict[str, list[Object]] = {}
    for pod in pods:
        if (pod.get("status") or {}).get("podIP") and not is_finished(pod):
            by_namespace.setdefault(namespace_of(pod), []).append(pod)
    return {
        f"{namespace_of(one)}/{name_of(one)}": _entry(one, by_namespace.get(namespace_of(one), []))
        for one in sorted(services, key=lambda one: (namespace_of(one), name_of(one)))
        if one["spec"].get("selector")
    }


def _entry(service: Object, pods: list[Object]) -> Object:
    spec = service["spec"]
    wanted = spec["selector"].items()
    chosen = [pod for pod in pods if wanted <= labels_of(pod).items()]
    named = spec.get("publishNotReadyAddresses") or False
    published = sorted((pod for pod in chosen if named or is_true(pod, "Ready")), key=name_of)
    hosts = {
        pod["spec"]["hostname"]: [pod["status"]["podIP"]]
        for pod in published
        if pod["spec"].get("hostname") and pod["spec"].get("subdomain") == name_of(service)
    }
    ports: dict[str, int] = {}
    if spec.get("clusterIP") != "None":
        for port in spec.get("ports") or ():
            number = _target(port, published)
            if number and number != port["port"]:
                ports[str(port["port"])] = number
    return {"addresses": [pod["status"]["podIP"] for pod in published], "hosts": hosts, "ports": ports}


def _target(port: Object, pods: list[Object]) -> int:
    """The port of the pods behind a port of the Service; 0 if it is a name that they do not have."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    for pod in pods:
        for container in pod["spec"]["containers"]:
            for one in container.get("ports") or ():
                if one.get("name") == target:
                    return int(one["containerPort"])
    return 0


class NamesFile:
    """The file with the names of Services; it is replaced as a whole when they change.

    Args:
        path: the path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._written = path, _NO_ENTRY
        self._path.write_text("{}")

    def write(self, names: Object) -> None:
        """Replace the file if the names have changed."""
        if names != self._written:
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(names))
            new.replace(self._path)
            self._written = names
