"""Exec plugins of a kubeconfig: what they receive, what they may print, and that none is left behind."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from edl.errors import ConfigError
from edl.kube.client import exec_plugin
from edl.kube.client.credentials import load_configuration
from tests.worlds.fake_api import eventually

VERSION = "client.authentication.k8s.io/v1"
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def write_plugin(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def printing(status: dict[str, Any] | None = None, **fields: Any) -> str:
    answer = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status or {"token": "t"}, **fields}
    return f"cat <<'END'\n{json.dumps(answer)}\nEND"


def write_config(folder: Path, plugin: dict[str, Any], cluster: dict[str, Any] | None = None) -> str:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"exec": {"apiVersion": VERSION, **plugin}}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def read(path: str | None) -> str:
    assert path is not None
    return Path(path).read_text()


async def received(folder: Path, plugin: dict[str, Any], cluster: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a plugin finds in its environment."""
    command = write_plugin(folder / "plugin", f'echo "$KUBERNETES_EXEC_INFO" > {folder}/received\n{printing()}')
    configuration = await load_configuration(write_config(folder, {"command": str(command), **plugin}, cluster))
    assert configuration.api_key["BearerToken"] == "Bearer t"
    info: dict[str, Any] = json.loads((folder / "received").read_text())
    assert (info["apiVersion"], info["kind"]) == (VERSION, "ExecCredential")
    spec: dict[str, Any] = info["spec"]
    return spec


async def test_a_plugin_that_wants_it_gets_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "certificates").mkdir()
    (tmp_path / "certificates" / "ca.pem").write_text(CA)
    cluster = {
        "certificate-authority": "certificates/ca.pem",
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
        "extensions": [
            {"name": "another", "extension": {"audience": "wrong"}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a", "sizes": [1, 2]}},
        ],
    }
    assert (await received(tmp_path, {"provideClusterInfo": True}, cluster))["cluster"] == {
        "server": "https://127.0.0.1:9",
        "certificate-authority-data": base64.b64encode(CA.encode()).decode(),
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
        "config": {"audience": "a", "sizes": [1, 2]},
    }


async def test_certificates_in_the_kubeconfig_are_passed_as_they_are(tmp_path: Path) -> None:
    data = base64.b64encode(CA.encode()).decode()
    cluster = {"certificate-authority-data": data, "certificate-authority": "/nowhere"}
    spec = await received(tmp_path, {"provideClusterInfo": True}, cluster)
    assert spec["cluster"] == {"server": "https://127.0.0.1:9", "certificate-authority-data": data}


async def test_a_plugin_learns_that_certificates_are_not_checked(tmp_path: Path) -> None:
    spec = await received(tmp_path, {"provideClusterInfo": True}, {"insecure-skip-tls-verify": True})
    assert spec["cluster"] == {"server": "https://127.0.0.1:9", "insecure-skip-tls-verify": True}


@pytest.mark.parametrize("plugin", [{}, {"provideClusterInfo": False}], ids=["silent", "refused"])
async def test_a_plugin_that_does_not_want_it_gets_no_cluster(tmp_path: Path, plugin: dict[str, Any]) -> None:
    assert await received(tmp_path, plugin) == {"interactive": False}


async def test_the_arguments_and_the_environment_of_the_kubeconfig_are_used(tmp_path: Path) -> None:
    command = write_plugin(tmp_path / "plugin", f'echo "$1 $REGION $HOME" > {tmp_path}/received\n{printing()}')
    plugin = {"command": str(command), "args": ["get-token"], "env": [{"name": "REGION", "value": "north"}]}
    await load_configuration(write_config(tmp_path, plugin))
    assert (tmp_path / "received").read_text() == f"get-token north {os.environ['HOME']}\n"


async def test_a_command_with_a_slash_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    write_plugin(tmp_path / "bin" / "plugin", printing({"token": "relative"}))
    configuration = await load_configuration(write_config(tmp_path, {"command": "bin/plugin"}))
    assert configuration.api_key["BearerToken"] == "Bearer relative"


async def test_a_plugin_may_give_a_certificate_and_a_token(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("edl")
    certificate, key = issued.cert_chain_pems[0].bytes().decode(), issued.private_key_pem.bytes().decode()
    status = {"token": "t", "clientCertificateData": certificate, "clientKeyData": key}
    command = write_plugin(tmp_path / "plugin", printing(status))
    configuration = await load_configuration(write_config(tmp_path, {"command": str(command)}))
    assert configuration.api_key["BearerToken"] == "Bearer t"
    assert [read(configuration.cert_file), read(configuration.key_file)] == [certificate, key]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo no network >&2; exit 3", "ended with 3: no network"),
        ("echo hello", "printed no JSON"),
        ("echo '[]'", "printed no ExecCredential"),
        (printing(apiVersion="client.authentication.k8s.io/v1beta1"), "set the version of the plugin"),
        (printing({"expirationTimestamp": "2026-01-01T00:00:00Z"}), "neither a token nor a client certificate"),
        (printing({"clientCertificateData": "pem"}), "only one of clientCertificateData and clientKeyData"),
    ],
)
async def test_what_a_plugin_does_wrong_is_an_error_that_names_it(tmp_path: Path, script: str, says: str) -> None:
    command = write_plugin(tmp_path / "plugin", script)
    with pytest.raises(ConfigError, match=says) as caught:
        await load_configuration(write_config(tmp_path, {"command": str(command)}))
    assert f"gives no credentials: the exec plugin {command}" in str(caught.value)


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        ({"command": "edl-has-no-such-plugin", "installHint": "get it from\nthe store"}, "get it from the store"),
        ({"command": ""}, "has no command; set command in the kubeconfig"),
        ({"command": "true", "interactiveMode": "Always"}, "needs a terminal"),
    ],
)
async def test_a_plugin_that_cannot_run_is_an_error_with_a_remedy(
    tmp_path: Path, plugin: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        await load_configuration(write_config(tmp_path, plugin))


async def test_a_plugin_may_complain_at_length(tmp_path: Path) -> None:
    command = write_plugin(tmp_path / "plugin", f"head -c 300000 /dev/zero | tr '\\0' x >&2\n{printing()}")
    configuration = await load_configuration(write_config(tmp_path, {"command": str(command)}))
    assert configuration.api_key["BearerToken"] == "Bearer t"


async def test_a_plugin_that_hangs_ends_with_the_call_that_waits_for_it(tmp_path: Path) -> None:
    command = write_plugin(
        tmp_path / "plugin", f"echo $$ > {tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 600"
    )
    plugin = {"command": str(command)}
    call = asyncio.create_task(exec_plugin.run_plugin({"apiVersion": VERSION, **plugin}, {}, tmp_path, tmp_path))
    await eventually((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
