"""Who may read logs and run commands: the kubelet of the sandbox runs every command as the person who started it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from edl.kube.client.session import ApiSession
from edl.sandbox.apiserver.server import ApiServer
from edl.sandbox.certificate import write_certificate
from edl.sandbox.kubelet.callers import Callers
from edl.sandbox.kubelet.log_server import LogServer

SYSTEM = "/api/v1/namespaces/kube-system"
RBAC = "rbac.authorization.k8s.io"
ROUTES = (
    "/containerLogs/default/p/main",
    "/exec/default/p/main?command=id",
    "/attach/default/p/main",
    "/portForward/default/p",
    "/run/default/p/main",
    "/healthz",
    "/nowhere",
)


@dataclass
class Place:
    """A kubelet without pods, beside its API server."""

    api: ApiServer
    session: ApiSession
    server: LogServer
    folder: Path

    @asynccontextmanager
    async def client(self, certificate: Path | None = None) -> AsyncIterator[aiohttp.ClientSession]:
        """A client of the kubelet, with a certificate if one is given."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(certificate)
        port = await self.server.start()
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as http:
            yield http

    async def bind(self, user: str) -> None:
        """Let a user call kubelets."""
        rules = [{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["*"]}]
        role: dict[str, Any] = {"metadata": {"name": "calls-kubelets"}, "rules": rules}
        await self.session.post(f"/apis/{RBAC}/v1/clusterroles", role)
        binding: dict[str, Any] = {
            "metadata": {"name": "calls-kubelets"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "calls-kubelets"},
            "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
        }
        await self.session.post(f"/apis/{RBAC}/v1/clusterrolebindings", binding)

    async def trust(self, authority: str) -> None:
        """Name the authority of client certificates, as kube-apiserver does."""
        metadata = {"name": "extension-apiserver-authentication"}
        certificate = authority[authority.index("-----BEGIN CERTIFICATE") :]
        await self.session.post(
            f"{SYSTEM}/configmaps", {"metadata": metadata, "data": {"client-ca-file": certificate}}
        )


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with ApiServer() as api:
        api.cluster.tokens["of-a-pod"] = ("system:serviceaccount:default:default", ("system:authenticated",))
        api.write_kubeconfig(tmp_path / "kubeconfig")
        async with await ApiSession.open(str(tmp_path / "kubeconfig")) as session:
            server = LogServer(lambda *_: None, tmp_path, Callers(session))
            yield Place(api, session, server, tmp_path)
            await server.stop()


def bearing(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **more}


async def test_nobody_without_the_right_to_call_kubelets_is_served_on_any_route(place: Place) -> None:
    async with place.client() as http:
        for path in ROUTES:
            for headers, status in (
                ({}, 401),
                (bearing("made-up"), 401),
                (bearing("of-a-pod"), 403),
                (bearing(place.api.token, Origin="http://evil.example"), 403),
                (bearing(place.api.token, Host="evil.example"), 403),
            ):
                for method in ("GET", "POST"):
                    async with http.request(method, path, headers=headers) as answer:
                        assert answer.status == status, (method, path, headers)
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await http.ws_connect(path, headers=headers)
                assert refused.value.status == status


async def test_the_administrator_is_served(place: Place) -> None:
    async with place.client() as http, http.get(ROUTES[0], headers=bearing(place.api.token)) as answer:
        assert (answer.status, await answer.text()) == (404, "container main of pod p is not here\n")


async def test_the_token_that_kubelets_see_opens_nothing_at_the_api_server(place: Place) -> None:
    token = next(token for token, (user, _) in place.api.cluster.tokens.items() if user.endswith("kubelet-client"))
    async with aiohttp.ClientSession(place.api.url, headers=bearing(token)) as http:
        for path in ("/api/v1/pods", f"{SYSTEM}/secrets", "/api/v1/nodes"):
            async with http.get(path) as answer:
                assert answer.status == 403
    async with place.client() as http, http.get("/healthz", headers=bearing(token)) as answer:
        assert answer.status == 200


async def test_a_certificate_counts_if_the_api_server_trusts_its_authority_and_its_owner_has_the_right(
    place: Place,
) -> None:
    own = write_certificate(place.folder / "client.pem", name="calls-kubelets")
    await place.trust(own.read_text())
    async with place.client(own) as http:
        async with http.get("/healthz") as answer:
            assert (answer.status, "user 'calls-kubelets' may not" in await answer.text()) == (403, True)
        await place.bind("calls-kubelets")
        async with http.get("/healthz") as answer:
            assert answer.status == 200
        async with http.get("/healthz", headers=bearing("made-up")) as answer:
            assert answer.status == 401


async def test_a_certificate_of_another_authority_does_not_count(place: Place) -> None:
    await place.bind("calls-kubelets")
    own = write_certificate(place.folder / "client.pem", name="calls-kubelets")
    async with place.client(own) as http, http.get("/healthz") as answer:
        assert answer.status == 401
    await place.server.stop()
    await place.trust(write_certificate(place.folder / "authority.pem", name="calls-kubelets").read_text())
    async with place.client(own) as http:
        with pytest.raises(aiohttp.ClientError):
            await http.get("/healthz")


async def test_an_api_server_that_does_not_answer_lets_nobody_pass(place: Place) -> None:
    async with place.client() as http:
        await place.api.stop()
        async with http.get("/healthz", headers=bearing(place.api.token)) as answer:
            assert answer.status == 503
