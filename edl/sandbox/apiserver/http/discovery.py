"""Discovery: which groups, versions and resources there are."""

from __future__ import annotations

from edl.sandbox.apiserver.kinds.kind import Kind, Object
from edl.sandbox.apiserver.registry import Registry

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "edl",
    "platform": "linux/amd64",
}
_SCALE = ("autoscaling", "v1", "Scale", ("get", "patch", "update"))


def subresources_of(kind: Kind) -> dict[str, tuple[str, str, str, tuple[str, ...]]]:
    """The subresources of a kind: name to group, version, kind and verbs."""
    found = dict(kind.subresources)
    if kind.has_status:
        found["status"] = (kind.group, kind.version, kind.name, ("get", "patch", "update"))
    if kind.scale is not None:
        found["scale"] = _SCALE
    return dict(sorted(found.items()))


def legacy_versions() -> Object:
    """The answer of /api."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(registry: Registry) -> Object:
    """The answer of /apis."""
    groups = [group(registry, name) for name in registry.groups() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Object:
    """One group, as in the answer of /apis/GROUP."""
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in registry.groups()[name]]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(registry: Registry, group_name: str, version: str) -> Object:
    """The answer of /api/v1 and /apis/GROUP/VERSION."""
    resources: list[Object] = []
    for kind in registry.of_group(group_name, version):
        resources.append(_resource(kind))
        resources += [_subresource(kind, name, facts) for name, facts in subresources_of(kind).items()]
    api_version = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


def _resource(kind: Kind) -> Object:
    return {
        "name": kind.plural,
        "singularName": kind.singular or kind.name.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(kind.verbs),
        **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
        **({"categories": list(kind.categories)} if kind.categories else {}),
    }


def _subresource(kind: Kind, name: str, facts: tuple[str, str, str, tuple[str, ...]]) -> Object:
    group_name, version, kind_name, verbs = facts
    foreign = {"group": group_name, "version": version} if group_name != kind.group else {}
    return {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        **foreign,
        "kind": kind_name,
        "verbs": list(verbs),
    }


def aggregated(registry: Registry, *, legacy: bool) -> Object:
    """The aggregated answer of /api (legacy) and /apis, which newer clients ask for."""
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
            "versions": [_aggregated_version(registry, name, version) for version in versions],
        }
        for name, versions in registry.groups().items()
        if legacy is (name == "")
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_version(registry: Registry, group_name: str, version: str) -> Object:
    resources = [_aggregated(kind) for kind in registry.of_group(group_name, version)]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated(kind: Kind) -> Object:
    subresources = [
        {
            "subresource": name,
            "responseKind": {"group": group_name, "version": version, "kind": kind_name},
            "verbs": list(verbs),
        }
        for name, (group_name, version, kind_name, verbs) in subresources_of(kind).items()
    ]
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular or kind.name.lower(),
        "verbs": list(kind.verbs),
        **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
        **({"categories": list(kind.categories)} if kind.categories else {}),
        **({"subresources": subresources} if subresources else {}),
    }
