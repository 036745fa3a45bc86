"""What a kubeconfig says besides address and credentials: in whose name requests are sent, and proxies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.kube.client.credentials import (
    configuration_of_caller,
    impersonation_of,
    load_configuration,
    proxy_of_environment,
)
from edl.kube.client.session import ApiSession
from tests.kube.client.test_session import write_kubeconfig
from tests.worlds.fake_api import FakeApi


async def test_requests_are_sent_in_the_name_of_the_user_that_the_kubeconfig_impersonates(tmp_path: Path) -> None:
    api = FakeApi()
    user: dict[str, Any] = {
        "token": "t",
        "as": "jane",
        "as-uid": "u1",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"Scopes": ["view"]},
    }
    async with api.serve():
        path = write_kubeconfig(tmp_path / "config", api.url, user)
        async with await ApiSession.open(path) as session:
            await session.get("/api/v1/pods")
        configuration = await load_configuration(path)
    (sent,) = api.headers
    assert (sent["Impersonate-User"], sent["Impersonate-Uid"]) == ("jane", "u1")
    assert sent["Impersonate-Extra-scopes"] == "view"
    assert impersonation_of(configuration)[2:4] == (("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
    assert impersonation_of(configuration_of_caller(configuration, "another")) == ()


async def test_groups_without_a_user_are_an_error(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"as-groups": ["dev"]})
    with pytest.raises(ConfigError, match="set as to a user"):
        await load_configuration(path)


async def test_the_user_of_the_current_context_counts(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, "http://127.0.0.1:1", {})
    config = json.loads(path.read_text())
    config["users"].append({"name": "other", "user": {"as": "root"}})
    path.write_text(json.dumps(config))
    assert impersonation_of(await load_configuration(str(path))) == ()


@pytest.mark.parametrize(
    ("no_proxy", "host", "bypassed"),
    [
        ("10.96.0.0/12", "https://10.96.0.1:443", True),
        ("example.com, 10.96.0.0/12", "https://10.96.0.1", True),
        ("10.0.0.0/24", "https://10.96.0.1", False),
        ("fd00::/8", "https://[fd00::1]:6443", True),
        ("10.96.0.0/12", "https://kubernetes.default", False),
        ("", "https://10.96.0.1", False),
        ("not/a-network", "https://10.96.0.1", False),
        ("kubernetes.default", "https://kubernetes.default:443", True),
        (".example.com", "https://api.example.com", True),
        ("*", "https://10.96.0.1", True),
    ],
)
def test_no_proxy_is_honoured_with_its_networks(
    no_proxy: str, host: str, bypassed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://user:word@proxy:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert proxy_of_environment(host) == (None if bypassed else "http://user:word@proxy:3128")


def test_a_server_of_another_scheme_has_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert proxy_of_environment("http://10.96.0.1") is None


async def test_a_server_is_called_through_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = FakeApi()
    async with api.serve():
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, api.url)  # the fake answers for every host
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        async with await ApiSession.open(write_kubeconfig(tmp_path / "config", "http://api.invalid:8080")) as session:
            assert b"items" in await session.get("/api/v1/pods")


async def test_a_server_in_such_a_network_is_called_without_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
    api = FakeApi()
    async with api.serve(), await ApiSession.open(write_kubeconfig(tmp_path / "config", api.url)) as session:
        assert b"items" in await session.get("/api/v1/pods")
