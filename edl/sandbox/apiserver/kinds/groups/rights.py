"""The kinds of rights: roles and their bindings, and the reviews, which are answered and never stored."""

from __future__ import annotations

from functools import partial

from edl.sandbox.apiserver.kinds import defaults
from edl.sandbox.apiserver.kinds.kind import Kind
from edl.sandbox.apiserver.kinds.rows import cluster as cluster_rows

_kind = partial(Kind, "rbac.authorization.k8s.io", "v1")
_RBAC = "io.k8s.api.rbac.v1."
_CREATE = ("create",)


KINDS = (
    _kind(
        "ClusterRole",
        "clusterroles",
        namespaced=False,
        type_name=f"{_RBAC}ClusterRole",
        columns=cluster_rows.CREATED_AT,
        row=cluster_rows.created_at_row,
        name_form="path",
    ),
    _kind(
        "ClusterRoleBinding",
        "clusterrolebindings",
        namespaced=False,
        type_name=f"{_RBAC}ClusterRoleBinding",
        columns=cluster_rows.BINDING_COLUMNS,
        row=cluster_rows.binding_row,
        name_form="path",
        prepare=defaults.role_binding,
        rules=defaults.role_binding_rules,
    ),
    _kind(
        "Role",
        "roles",
        namespaced=True,
        type_name=f"{_RBAC}Role",
        columns=cluster_rows.CREATED_AT,
        row=cluster_rows.created_at_row,
        name_form="path",
    ),
    _kind(
        "RoleBinding",
        "rolebindings",
        namespaced=True,
        type_name=f"{_RBAC}RoleBinding",
        columns=cluster_rows.BINDING_COLUMNS,
        row=cluster_rows.binding_row,
        name_form="path",
        prepare=defaults.role_binding,
        rules=defaults.role_binding_rules,
    ),
)

REVIEWS = (
    Kind(
        "authentication.k8s.io",
        "v1",
        "SelfSubjectReview",
        "selfsubjectreviews",
        namespaced=False,
        type_name="io.k8s.api.authentication.v1.SelfSubjectReview",
        verbs=_CREATE,
    ),
    Kind(
        "authentication.k8s.io",
        "v1",
        "TokenReview",
        "tokenreviews",
        namespaced=False,
        type_name="io.k8s.api.authentication.v1.TokenReview",
        verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        namespaced=False,
        type_name="io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        namespaced=False,
        type_name="io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        verbs=_CREATE,
    ),
    Kind(
        "authorization.k8s.io",
        "v1",
        "SubjectAccessReview",
        "subjectaccessreviews",
        namespaced=False,
        type_name="io.k8s.api.authorization.v1.SubjectAccessReview",
        verbs=_CREATE,
    ),
)
"""Kinds that are answered and never stored."""
