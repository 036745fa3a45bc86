"""A ServiceAccount may do what its roles say and no more, and hears why in the words of the real server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.servers import Answer, Server

Object = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ME = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Account:
    """A ServiceAccount of a namespace, with its token."""

    def __init__(self, server: Server, space: str) -> None:
        self.server, self.space, self.name = server, space, "reader"
        self.user = f"system:serviceaccount:{space}:{self.name}"
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": self.name}}
        assert server.send("POST", f"/api/v1/namespaces/{space}/serviceaccounts", body).code == 201
        path = f"/api/v1/namespaces/{space}/serviceaccounts/{self.name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        self.headers = {"Authorization": f"Bearer {server.send('POST', path, request).body['status']['token']}"}

    def send(self, method: str, path: str, body: object = None) -> Answer:
        return self.server.send(method, path, body, headers=self.headers)

    def bind(self, kind: str, name: str, rules: list[Object] | None, *, cluster: bool = False) -> None:
        """Bind a role, and create it unless `rules` is None."""
        of_role = f"{RBAC}/clusterroles" if kind == "ClusterRole" else f"{RBAC}/namespaces/{self.space}/roles"
        of_binding = f"{RBAC}/clusterrolebindings" if cluster else f"{RBAC}/namespaces/{self.space}/rolebindings"
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
        if rules is not None:
            assert self.server.send("POST", of_role, {**head, "kind": kind, "rules": rules}).code == 201
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": self.space}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {**head, "kind": "ClusterRoleBinding" if cluster else "RoleBinding"}
        body = {**binding, "roleRef": reference, "subjects": [subject]}
        assert self.server.send("POST", of_binding, body).code == 201

    def may(self, verb: str, resource: str, **more: str) -> bool:
        attributes = {"verb": verb, "resource": resource, "namespace": self.space, **more}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = self.send("POST", ME, {**body, "spec": {"resourceAttributes": attributes}})
        assert answer.code == 201
        allowed: bool = answer.body["status"]["allowed"]
        return allowed

    def wait(self, path: str) -> None:
        """Wait until a right is known to the server, which learns of roles by watching them."""
        self.server.kube.wait_until(lambda: self.send("GET", path).code == 200, 20, f"{path} is allowed")


@pytest.fixture
def account(server: Server, space: str) -> Account:
    return Account(server, space)


def test_an_account_without_a_role_is_refused_with_the_verb_the_resource_and_the_place(account: Account) -> None:
    space, user = account.space, account.user
    refusals = {
        ("GET", f"/api/v1/namespaces/{space}/pods"): (
            f'pods is forbidden: User "{user}" cannot list resource "pods" in API group "" in the namespace "{space}"'
        ),
        ("GET", f"/api/v1/namespaces/{space}/pods/web"): (
            f'pods "web" is forbidden: User "{user}" cannot get resource "pods" in API group "" in the namespace '
            f'"{space}"'
        ),
        ("GET", f"/api/v1/namespaces/{space}/pods/web/log"): (
            f'pods "web" is forbidden: User "{user}" cannot get resource "pods/log" in API group "" in the namespace '
            f'"{space}"'
        ),
        ("GET", "/api/v1/nodes"): (
            f'nodes is forbidden: User "{user}" cannot list resource "nodes" in API group "" at the cluster scope'
        ),
        ("DELETE", f"/apis/paddlepaddle.org/v1/namespaces/{space}/trainingjobs/a"): (
            f'trainingjobs.paddlepaddle.org "a" is forbidden: User "{user}" cannot delete resource "trainingjobs" in '
            f'API group "paddlepaddle.org" in the namespace "{space}"'
        ),
        ("GET", "/api/v1/nones"): (
            f'nones is forbidden: User "{user}" cannot list resource "nones" in API group "" at the cluster scope'
        ),
        ("GET", "/metrics"): f'forbidden: User "{user}" cannot get path "/metrics"',
    }
    for request, refusal in refusals.items():
        answer = account.send(*request)
        assert (answer.code, answer.reason, answer.message) == (403, "Forbidden", refusal)


def test_a_refusal_names_the_object_in_its_details(account: Account) -> None:
    answer = account.send("DELETE", f"/apis/apps/v1/namespaces/{account.space}/deployments/web")
    assert answer.body["details"] == {"name": "web", "group": "apps", "kind": "deployments"}


def test_a_role_allows_its_verbs_in_its_namespace_and_no_more(account: Account) -> None:
    account.bind("Role", "pods", [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}])
    pods = f"/api/v1/namespaces/{account.space}/pods"
    account.wait(pods)
    assert account.send("GET", f"{pods}/none").code == 404
    assert account.send("GET", f"{pods}/none/log").code == 404
    assert account.send("DELETE", f"{pods}/none").code == 403
    assert account.send("GET", f"{pods}?watch=1&timeoutSeconds=1").code == 403
    assert account.send("GET", "/api/v1/namespaces/default/pods").code == 403
    assert account.send("GET", "/api/v1/pods").code == 403


def test_a_rule_with_names_allows_these_objects_only(account: Account) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["kube-root-ca.crt"], "verbs": ["get"]}
    account.bind("Role", "one", [rule])
    maps = f"/api/v1/namespaces/{account.space}/configmaps"
    account.wait(f"{maps}/kube-root-ca.crt")
    assert account.send("GET", f"{maps}/other").code == 403
    assert account.send("GET", maps).code == 403


def test_a_cluster_role_counts_where_it_is_bound(account: Account) -> None:
    name = f"reads-{account.space}"
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]}]
    account.bind("ClusterRole", name, rules)
    account.wait(f"/api/v1/namespaces/{account.space}/pods")
    assert account.send("GET", "/api/v1/nodes").code == 403
    account.bind("ClusterRole", name, None, cluster=True)
    account.wait("/api/v1/nodes")
    assert account.send("GET", "/api/v1/pods").code == 200


def test_a_refusal_says_that_a_bound_role_does_not_exist(account: Account) -> None:
    account.bind("Role", "gone", None)
    pods = f"/api/v1/namespaces/{account.space}/pods"

    def refusal() -> bool:
        return account.send("GET", pods).message.endswith(': RBAC: role.rbac.authorization.k8s.io "gone" not found')

    account.server.kube.wait_until(refusal, 20, "the refusal names the role")


def test_everybody_may_ask_what_he_may_do(account: Account) -> None:
    account.bind("Role", "pods", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    account.wait(f"/api/v1/namespaces/{account.space}/pods")
    assert account.may("list", "pods")
    assert not account.may("delete", "pods")
    assert not account.may("list", "pods", subresource="log")
    assert not account.may("list", "pods", group="apps")
    assert account.send("GET", "/api").code == 200
    assert account.send("GET", "/version").code == 200


def test_who_may_act_as_another_gets_the_rights_of_the_other(account: Account) -> None:
    headers = {"Impersonate-User": account.user}
    answer = account.server.send("GET", f"/api/v1/namespaces/{account.space}/pods", headers=headers)
    assert f'User "{account.user}" cannot list resource "pods"' in answer.message
    answer = account.server.send("GET", "/api/v1/nodes", headers={**account.headers, "Impersonate-User": "bob"})
    assert answer.message == (
        f'nodes is forbidden: User "{account.user}" cannot impersonate-on:user-info:list resource "nodes" in '
        'API group "" at the cluster scope'
    )
