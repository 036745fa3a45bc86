from __future__ import annotations

import asyncio
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edl.errors import ConfigError, ConflictError, EdlError, PermanentError, TemporaryError
from edl.kube.client.api_errors import AlreadyExistsError, GoneError, NotFoundError, RefusedError
from edl.kube.client.credentials import load_configuration
from edl.kube.client.session import ApiSession
from tests.worlds.fake_api import FakeApi, connected, refusal, reset


def write_kubeconfig(path: Path, server: str, user: dict[str, Any] | None = None) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(json.dumps(config))
    return str(path)


@pytest.fixture(autouse=True)
def _no_cluster_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", RefusedError),
        (401, "Unauthorized", RefusedError),
        (403, "Forbidden", RefusedError),
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (409, "AlreadyExists", AlreadyExistsError),
        (410, "Expired", GoneError),
        (422, "Invalid", RefusedError),
        (429, "TooManyRequests", TemporaryError),
        (500, "InternalError", TemporaryError),
        (503, "ServiceUnavailable", TemporaryError),
        (302, "", RefusedError),
    ],
)
async def test_each_status_code_becomes_its_error_with_request_and_message(
    code: int, reason: str, kind: type[EdlError]
) -> None:
    api = FakeApi()
    api.faults.append(refusal(code, reason, "pods is full"))
    async with connected(api) as session:
        with pytest.raises(EdlError, match="pods is full") as caught:
            await session.get("/api/v1/pods")
    assert type(caught.value) is kind
    assert "GET /api/v1/pods" in str(caught.value)


async def test_429_carries_the_time_to_wait() -> None:
    api = FakeApi()
    api.faults.append(refusal(429, "TooManyRequests", **{"Retry-After": "7"}))
    async with connected(api) as session:
        with pytest.raises(TemporaryError) as caught:
            await session.post("/api/v1/namespaces/a/pods", {})
    assert caught.value.retry_after_s == 7


async def test_a_conflict_is_neither_temporary_nor_permanent() -> None:
    api = FakeApi()
    api.faults.append(refusal(409, "Conflict"))
    async with connected(api) as session:
        with pytest.raises(ConflictError) as caught:
            await session.patch("/api/v1/namespaces/a/pods/b", {"metadata": {"uid": "other"}})
    assert not isinstance(caught.value, TemporaryError | PermanentError)


async def test_a_lost_connection_is_temporary() -> None:
    api = FakeApi()
    api.faults += [reset, reset, reset]
    async with connected(api) as session:
        with pytest.raises(TemporaryError, match="cannot be reached"):
            await session.post("/api/v1/namespaces/a/pods", {})


async def test_a_timeout_is_temporary() -> None:
    async def sleep(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    api = FakeApi()
    api.faults.append(sleep)
    async with connected(api, timeout_s=0.05) as session:
        with pytest.raises(TemporaryError, match="did not answer in time"):
            await session.get("/api")


async def test_a_server_that_does_not_listen_is_temporary() -> None:
    api = FakeApi()
    async with connected(api):
        url = api.url
    async with ApiSession(await _configuration(url)) as session:
        with pytest.raises(TemporaryError, match=r": http://127\.0\.0\.1:\d+ cannot be reached: Connection refused$"):
            await session.get("/api")


async def test_a_closed_session_is_temporary() -> None:
    async with connected(FakeApi()) as session:
        await session.close()
        with pytest.raises(TemporaryError, match="closed"):
            await session.get("/api")


async def test_a_response_that_is_not_json_is_temporary() -> None:
    api = FakeApi()
    api.faults.append(lambda _: web.Response(text="<html>log in</html>"))
    async with connected(api) as session:
        with pytest.raises(TemporaryError, match="not a JSON object"):
            await session.post("/x", {})


async def test_a_deletion_names_the_uid_and_the_version() -> None:
    api = FakeApi()
    async with connected(api) as session:
        await session.delete("/p", uid="u-1", resource_version="9", grace_s=0, propagation="Background")
    assert json.loads(api.bodies[-1]) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u-1", "resourceVersion": "9"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


async def test_a_patch_is_a_merge_patch_by_default() -> None:
    api = FakeApi()
    async with connected(api) as session:
        await session.patch("/p", {"a": None})
    assert api.headers[-1]["Content-Type"] == "application/merge-patch+json"
    assert json.loads(api.bodies[-1]) == {"a": None}


async def test_a_token_of_a_kubeconfig_is_sent(tmp_path: Path) -> None:
    api = FakeApi()
    async with api.serve():
        path = write_kubeconfig(tmp_path / "k", api.url, {"token": "secret\n"})
        async with await ApiSession.open(path) as session:
            await session.get("/api")
    assert api.headers[-1]["Authorization"] == "Bearer secret"


async def test_kubeconfig_is_found_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "k", "http://127.0.0.1:9"))
    assert (await load_configuration()).host == "http://127.0.0.1:9"


async def test_an_exec_plugin_runs_again_after_a_401(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "plugin"
    version = "client.authentication.k8s.io/v1"
    plugin.write_text(
        "#!/bin/sh\n"
        f"echo x >> {tmp_path}/calls\n"
        f"n=$(wc -l < {tmp_path}/calls | tr -d ' ')\n"
        f'echo "{{\\"apiVersion\\": \\"{version}\\", \\"kind\\": \\"ExecCredential\\", '
        '\\"status\\": {\\"token\\": \\"t$n\\"}}"\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr("edl.kube.client.reloading.RELOAD_PAUSE_S", 0.0)
    api = FakeApi()
    api.faults.append(refusal(401, "Unauthorized"))
    async with api.serve():
        user = {"exec": {"apiVersion": version, "command": str(plugin)}}
        async with await ApiSession.open(write_kubeconfig(tmp_path / "k", api.url, user)) as session:
            await session.get("/api")
    assert [h["Authorization"] for h in api.headers] == ["Bearer t1", "Bearer t2"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "cannot be used"),
        ("just words", "cannot be used: it is not a kubeconfig; give a file that kubectl reads"),
        ("- a\n- b\n", "cannot be used"),
        ("a: [", "cannot be used"),
        ("\x00\x01", "cannot be used"),
        ('{"current-context": "c", "contexts": [], "clusters": [], "users": []}', "cannot be used"),
    ],
)
async def test_an_invalid_kubeconfig_is_an_error_that_names_the_file(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigError, match=says) as caught:
        await load_configuration(str(path))
    assert str(path) in str(caught.value)


async def test_a_missing_kubeconfig_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match="/nowhere/config does not exist; give"):
        await load_configuration("/nowhere/config")


async def test_a_folder_as_kubeconfig_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        await load_configuration(str(tmp_path))


async def test_without_any_configuration_the_error_names_the_flag_and_the_variable() -> None:
    with pytest.raises(ConfigError, match="give --kubeconfig FILE or set KUBECONFIG"):
        await load_configuration()


async def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("TOKEN", "from-the-pod\n"), ("CERT", "pem")):
        (tmp_path / name).write_text(content)
        monkeypatch.setattr(f"kubernetes.aio.config.incluster_config.SERVICE_{name}_FILENAME", str(tmp_path / name))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = await load_configuration()
    assert configuration.host == "https://10.0.0.1:443"
    assert configuration.ssl_ca_cert == str(tmp_path / "CERT")
    assert "from-the-pod" in configuration.api_key["BearerToken"]
    (tmp_path / "TOKEN").unlink()
    with pytest.raises(ConfigError, match="the service account cannot be used: Service token file does not exist"):
        await load_configuration()


async def test_a_failing_exec_plugin_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/plugin"}}
    with pytest.raises(ConfigError, match=r"gives no credentials: .*/nowhere/plugin"):
        await load_configuration(write_kubeconfig(tmp_path / "k", "https://127.0.0.1:9", user))
    assert not caplog.records


async def test_files_that_are_loaded_at_the_same_time_name_their_own_plugin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def load(name: str) -> str:
        code = f"import sys, time; time.sleep(0.2); sys.exit('refused by {name}')"
        plugin = {"command": sys.executable, "args": ["-c", code]}
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **plugin}}
        with pytest.raises(ConfigError) as caught:
            await load_configuration(write_kubeconfig(tmp_path / name, "https://127.0.0.1:9", user))
        return str(caught.value)

    one, two = await asyncio.gather(*(asyncio.to_thread(asyncio.run, load(name)) for name in ("one", "two")))
    assert ("refused by one" in one, "refused by two" in one) == (True, False)
    assert ("refused by two" in two, "refused by one" in two) == (True, False)
    assert not caplog.records


async def test_an_invalid_certificate_is_an_error_that_names_the_server(tmp_path: Path) -> None:
    path = write_kubeconfig(
        tmp_path / "k", "https://127.0.0.1:9", {"client-certificate-data": "bm8=", "client-key-data": "bm8="}
    )
    with pytest.raises(ConfigError, match=r"certificates for https://127\.0\.0\.1:9 cannot be used"):
        await ApiSession.open(path)


async def test_a_server_that_is_not_a_url_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a URL; write https://HOST:PORT"):
        await load_configuration(write_kubeconfig(tmp_path / "k", "127.0.0.1:6443"))


async def _configuration(url: str) -> Any:
    from kubernetes.aio.client import Configuration  # noqa: PLC0415

    return Configuration(host=url)
