"""Authorization: RBAC over the stored roles and bindings.

The administrator's token may do everything. Every other user, such as the ServiceAccount of a pod, may do what the
bound roles say, read what a client needs to find its way, and ask what it may do. Not here: the ready-made roles of a
cluster except cluster-admin, aggregated roles, and the rule that nobody may give rights that he does not have.

Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac and its bootstrap policy, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import ApiError, forbidden
from edl.sandbox.apiserver.http.request import Request
from edl.sandbox.apiserver.kinds.kind import Object, dig

MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
"""The user as whom the server calls kubelets; the name that kubeadm gives it."""

_GROUP = "rbac.authorization.k8s.io"
_ALL = ["*"]
_ADMIN = {"rules": [{"apiGroups": _ALL, "resources": _ALL, "verbs": _ALL}, {"nonResourceURLs": _ALL, "verbs": _ALL}]}
_PATHS = [*("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"), "/version", "/version/"]
_HEALTH = ["/healthz", "/livez", "/readyz"]
_REVIEWS = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
_EVERYONE: Sequence[Object] = (
    {"nonResourceURLs": [*_HEALTH, *_PATHS], "verbs": ["get"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": _REVIEWS, "verbs": ["create"]},
    {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
)
_KUBELET_API: Sequence[Object] = ({"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": _ALL},)
_OPEN = ("/healthz", "/livez", "/readyz", "/version")


@dataclass(frozen=True, slots=True)
class User:
    """The user who makes a request."""

    name: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a user wants to do: a verb on a resource, or on a path that is no resource.

    Attributes:
        resource: the plural, with the subresource: `pods/log`.
        path: empty for a resource.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f'{self.verb} path "{self.path}"'
        place = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'{self.verb} resource "{self.resource}" in API group "{self.group}" {place}'


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the authorizer: whether it allows an attempt, and why."""

    allowed: bool
    reason: str = ""


def attempt_of(request: Request) -> Attempt:
    """The verb and the resource of a request, for authorization."""
    target = request.target
    if target is None:
        return Attempt(request.verb, path=request.path)
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    namespace = target.namespace
    if not namespace and target.plural == "namespaces" and target.group == "":
        namespace = target.name
    return Attempt(request.verb, target.group, resource, namespace, target.name)


def require(cluster: Cluster, request: Request) -> None:
    """Reject a request that its user may not make.

    Raises:
        ApiError: 403.
    """
    user, attempt = User(request.user, request.groups), attempt_of(request)
    if MASTERS in user.groups or attempt.path in _OPEN:
        return
    answer = judge(cluster, user, attempt)
    if not answer.allowed:
        raise refused(user, attempt, answer)


def refused(user: User, attempt: Attempt, answer: Answer) -> ApiError:
    """Make the error for an attempt that a user may not make."""
    detail = f'User "{user.name}" cannot {attempt}' + (f": {answer.reason}" if answer.reason else "")
    if attempt.path:
        return ApiError(403, "Forbidden", f"forbidden: {detail}", {})
    return forbidden(attempt.resource.partition("/")[0], attempt.group, attempt.name, detail)


def judge(cluster: Cluster, user: User, attempt: Attempt) -> Answer:
    """Decide whether a user may do something, and by which binding."""
    if MASTERS in user.groups:
        return Answer(allowed=True)
    missing = []
    for source, rules in _granted(cluster, user, attempt.namespace):
        if isinstance(rules, str):
            missing.append(rules)
        elif any(_matches(rule, attempt) for rule in rules):
            return Answer(allowed=True, reason=f"RBAC: allowed by {source}" if source else "")
    detail = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
    return Answer(allowed=False, reason=f"RBAC: {detail}" if missing else "")


def rules_of(cluster: Cluster, user: User, namespace: str) -> list[Object]:
    """Every rule that holds for a user in a namespace."""
    if MASTERS in user.groups:
        return list(_ADMIN["rules"])
    granted = (rules for _, rules in _granted(cluster, user, namespace) if not isinstance(rules, str))
    return [rule for rules in granted for rule in rules]


def _granted(cluster: Cluster, user: User, namespace: str) -> Iterator[tuple[str, Sequence[Object] | str]]:
    """(binding, rules of its role) for each binding of the user; text instead of rules says what is missing."""
    if AUTHENTICATED in user.groups:
        yield "", _EVERYONE
    if user.name == KUBELET_CLIENT:
        yield "", _KUBELET_API
    for binding in ("clusterrolebindings", "rolebindings"):
        if binding == "rolebindings" and not namespace:
            continue
        place = namespace if binding == "rolebindings" else ""
        for (_, name), entry in cluster.store.entries(f"{binding}.{_GROUP}", place):
            subject = next((one for one in entry.value.get("subjects", ()) if _is(one, user, place)), None)
            if subject is not None:
                role = entry.value["roleRef"]
                rules = _rules(cluster, role, place)
                yield _source(binding, f"{place}/{name}" if place else name, role, subject), rules


def _rules(cluster: Cluster, role: Object, namespace: str) -> Sequence[Object] | str:
    kind, name = role.get("kind", ""), role.get("name", "")
    plural = f"{kind.lower()}s.{_GROUP}"
    found = cluster.find(plural, namespace if kind == "Role" else "", name)
    if found is None and (kind, name) == ("ClusterRole", "cluster-admin"):
        found = _ADMIN
    if found is None:
        return f'{kind.lower()}.{_GROUP} "{name}" not found'
    rules: list[Object] = found.get("rules") or []
    return rules


def _source(binding: str, name: str, role: Object, subject: Object) -> str:
    kind = "ClusterRoleBinding" if binding.startswith("cluster") else "RoleBinding"
    who = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        who = f"{who}/{subject.get('namespace', '')}"
    return f'{kind} "{name}" of {role.get("kind")} "{role.get("name")}" to {subject.get("kind")} "{who}"'


def _is(subject: Object, user: User, namespace: str) -> bool:
    name = subject.get("name")
    match subject.get("kind"):
        case "User":
            return bool(name == user.name)
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return False


def _matches(rule: Object, attempt: Attempt) -> bool:
    if not _names(rule.get("verbs"), attempt.verb):
        return False
    if attempt.path:
        return any(_covers(path, attempt.path) for path in rule.get("nonResourceURLs") or ())
    resource, _, subresource = attempt.resource.partition("/")
    resources = rule.get("resources") or ()
    named = rule.get("resourceNames") or ()
    return (
        _names(rule.get("apiGroups"), attempt.group)
        and (
            _names(resources, attempt.resource) or bool(subresource and f"*/{subresource}" in resources and resource)
        )
        and (not named or attempt.name in named)
    )


def _names(words: Any, word: str) -> bool:
    return words is not None and (word in words or "*" in words)


def _covers(pattern: str, path: str) -> bool:
    return pattern in {"*", path} or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def account_groups(user: str) -> tuple[str, ...]:
    """The groups that a user has by name: those of a ServiceAccount, or of any authenticated user."""
    parts = user.split(":")
    if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
        return ("system:serviceaccounts", f"system:serviceaccounts:{parts[2]}", AUTHENTICATED)
    return (AUTHENTICATED,)


def impersonated(cluster: Cluster, asker: User, request: Request, name: str, groups: Sequence[str]) -> User:
    """The user whom a request names in its headers.

    Raises:
        ApiError: 403, the asker may not act as that user.
    """
    parts = name.split(":")
    is_account = parts[:2] == ["system", "serviceaccount"] and len(parts) == 4
    whom = Attempt("impersonate", "", "users", "", name)
    if is_account:
        whom = Attempt("impersonate", "", "serviceaccounts", parts[2], parts[3])
    for one in (whom, *(Attempt("impersonate", "", "groups", "", group) for group in groups)):
        if not (answer := judge(cluster, asker, one)).allowed:
            attempt = attempt_of(request)
            form = "serviceaccount" if is_account else "user-info"
            raise refused(asker, replace(attempt, verb=f"impersonate-on:{form}:{attempt.verb}"), answer)
    if not groups:
        return User(name, account_groups(name))
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


def reviewed(spec: Object) -> Attempt:
    """What an access review asks about."""
    if (path := dig(spec, "nonResourceAttributes")) is not None:
        return Attempt(path.get("verb", ""), path=path.get("path", ""))
    about: dict[str, str] = dig(spec, "resourceAttributes", default={})
    resource = about.get("resource", "")
    if about.get("subresource"):
        resource = f"{resource}/{about['subresource']}"
    return Attempt(
        about.get("verb", ""), about.get("group", ""), resource, about.get("namespace", ""), about.get("name", "")
    )
