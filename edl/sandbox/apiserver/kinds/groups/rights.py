"""The kinds of rights: roles and their bindings, and the reviews, which are answered and never stored."""

from __future__ import annotations

from edl.sandbox.apiserver.kinds import defaults
from edl.sandbox.apiserver.kinds.groups.group import Group
from edl.sandbox.apiserver.kinds.rows import cluster as rows

_RBAC = Group("rbac.authorization.k8s.io", "io.k8s.api.rbac.v1")
_AUTHENTICATION = Group("authentication.k8s.io", "io.k8s.api.authentication.v1")
_AUTHORIZATION = Group("authorization.k8s.io", "io.k8s.api.authorization.v1")
_CREATE = ("create",)


KINDS = (
    _RBAC.kind("ClusterRole", rows.CREATED_AT, rows.created_at_row, namespaced=False, name_form="path"),
    _RBAC.kind(
        "ClusterRoleBinding",
        rows.BINDING_COLUMNS,
        rows.binding_row,
        namespaced=False,
        name_form="path",
        prepare=defaults.role_binding,
        rules=defaults.role_binding_rules,
    ),
    _RBAC.kind("Role", rows.CREATED_AT, rows.created_at_row, name_form="path"),
    _RBAC.kind(
        "RoleBinding",
        rows.BINDING_COLUMNS,
        rows.binding_row,
        name_form="path",
        prepare=defaults.role_binding,
        rules=defaults.role_binding_rules,
    ),
)

REVIEWS = (
    _AUTHENTICATION.kind("SelfSubjectReview", namespaced=False, verbs=_CREATE),
    _AUTHENTICATION.kind("TokenReview", namespaced=False, verbs=_CREATE),
    _AUTHORIZATION.kind("SelfSubjectAccessReview", namespaced=False, verbs=_CREATE),
    _AUTHORIZATION.kind("SelfSubjectRulesReview", namespaced=False, verbs=_CREATE),
    _AUTHORIZATION.kind("SubjectAccessReview", namespaced=False, verbs=_CREATE),
)
"""Kinds that are answered and never stored."""
