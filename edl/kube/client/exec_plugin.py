"""Credentials that a kubeconfig leaves to a program: an exec plugin, as kubectl runs it.

The official client runs plugins too, but passes them nothing of the cluster, takes a token or a certificate but not
both, leaves a plugin that hangs behind, and only logs what fails. Here the plugin is ended with the call that waits
for it, and every failure is an error that names the command.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins and
https://kubernetes.io/docs/reference/config-api/client-authentication.v1/.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from kubernetes.aio.client import Configuration
from kubernetes.aio.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader, KubeConfigMerger

from edl.errors import ConfigError
from edl.kube.client.api_errors import one_line

CONFIG_EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster whose content a plugin gets as `config`."""

_CLUSTER_FIELDS = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")

Object = Mapping[str, Any]


class PluginError(ConfigError):
    """An exec plugin gives no credentials; the message names its command."""


async def load_kubeconfig(paths: str, configuration: Configuration) -> Object:
    """Put the address and the credentials of the current context into a configuration.

    Args:
        paths: one path, or several as in $KUBECONFIG; at least one of the files exists.
        configuration: where they are put.

    Returns:
        The merged kubeconfig.

    Raises:
        PluginError: a plugin gives no credentials.
        ConfigException, OSError, YAMLError, LookupError, TypeError, ValueError, AttributeError: of the official
            client, for files that are no kubeconfig.
    """
    merged = KubeConfigMerger(paths).config
    await _Loader(merged).put_into(configuration)
    value: Object = merged.value
    return value


class _Loader(KubeConfigLoader):
    """The official loader, with plugins of our own."""

    def __init__(self, merged: ConfigNode) -> None:
        KubeConfigLoader.__init__(self, config_dict=merged, config_base_path=None)

    async def put_into(self, configuration: Configuration) -> None:
        await KubeConfigLoader.load_and_set(self, configuration)

    async def load_from_exec_plugin(self) -> bool:
        """Run the plugin of the user; the official loader calls this if the user has one."""
        plugin: ConfigNode = cast("ConfigNode", self._user)["exec"]
        cluster = cast("ConfigNode", self._cluster)
        status = await run_plugin(plugin.value, cluster.value, _folder(plugin.path), _folder(cluster.path))
        if token := status.get("token"):
            self.token = f"Bearer {token}"
        if status.get("clientCertificateData"):
            self.cert_file, self.key_file = (
                FileOrData(status, None, data_key_name=name, base64_file_content=False).as_file()
                for name in ("clientCertificateData", "clientKeyData")
            )
        return True


async def run_plugin(plugin: Object, cluster: Object, folder: Path, cluster_folder: Path) -> Object:
    """Run a plugin and return its `status`: a token, or a client certificate with its key, or both.

    Args:
        plugin: `exec` of a user of a kubeconfig.
        cluster: `cluster` of the cluster that is called.
        folder: the folder of the user's file; a command with a slash is relative to it.
        cluster_folder: the folder of the cluster's file.

    Raises:
        PluginError: the plugin cannot be run, fails, or prints no credentials.
    """
    for key in ("command", "apiVersion"):
        if not plugin.get(key):
            raise PluginError(f"the exec plugin has no {key}; set {key} in the kubeconfig")
    command, version = str(plugin["command"]), str(plugin["apiVersion"])
    interactive = _is_interactive(plugin, command)
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster, cluster_folder)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    env = os.environ | {str(item["name"]): str(item["value"]) for item in plugin.get("env") or ()}
    env["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    if "/" in command:
        command = str(folder / command)
    printed = await _output([command, *map(str, plugin.get("args") or ())], env, plugin, interactive=interactive)
    return _status(command, version, printed)


async def _output(command: list[str], env: Mapping[str, str], plugin: Object, *, interactive: bool) -> bytes:
    """Run a program and return what it prints; it is killed if the caller stops waiting.

    Args:
        command: the program and its arguments.
        env: its environment.
        plugin: `exec` of the user, for the hint that it holds.
        interactive: the program may talk with the person at the terminal.
    """
    terminal = None  # what edl itself has
    own = (terminal, terminal) if interactive else (DEVNULL, PIPE)
    try:
        process = await asyncio.create_subprocess_exec(*command, env=env, stdin=own[0], stdout=PIPE, stderr=own[1])
    except OSError as error:
        hint = f"; {one_line(plugin['installHint'])}" if plugin.get("installHint") else ""
        raise PluginError(f"the exec plugin {command[0]} cannot be run: {one_line(error)}{hint}") from error
    try:
        printed, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        why = f": {one_line(complaints.decode(errors='replace'))}" if complaints else ""
        raise PluginError(f"the exec plugin {command[0]} ended with {process.returncode}{why}")
    return printed


def _status(command: str, version: str, printed: bytes) -> Object:
    try:
        answer = json.loads(printed)
    except ValueError as error:
        raise PluginError(f"the exec plugin {command} printed no JSON: {one_line(error)}") from error
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict) or answer.get("kind") != "ExecCredential":
        raise PluginError(f"the exec plugin {command} printed no ExecCredential with a status")
    if answer.get("apiVersion") != version:
        raise PluginError(
            f"the exec plugin {command} printed apiVersion {answer.get('apiVersion')!r}, but the kubeconfig says "
            f"{version}; set the version of the plugin"
        )
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if bool(certificate) != bool(key):
        raise PluginError(f"the exec plugin {command} printed only one of clientCertificateData and clientKeyData")
    if not status.get("token") and not certificate:
        raise PluginError(f"the exec plugin {command} printed neither a token nor a client certificate")
    return status


def _is_interactive(plugin: Object, command: str) -> bool:
    """True if the plugin may talk with a person.

    Raises:
        PluginError: it must, and there is no terminal.
    """
    mode = plugin.get("interactiveMode") or "IfAvailable"
    has_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if mode == "Always" and not has_terminal:
        raise PluginError(
            f"the exec plugin {command} needs a terminal (interactiveMode: Always), but edl has none; run edl in a "
            "terminal or use other credentials"
        )
    return has_terminal and mode != "Never"


def _cluster_info(cluster: Object, folder: Path) -> Object:
    """Describe the cluster for a plugin with `provideClusterInfo`: certificates as data, `config` as given."""
    info = {name: cluster[name] for name in _CLUSTER_FIELDS if cluster.get(name)}
    if data := cluster.get("certificate-authority-data"):
        info["certificate-authority-data"] = data
    elif path := cluster.get("certificate-authority"):
        info["certificate-authority-data"] = base64.b64encode((folder / path).read_bytes()).decode()
    for named in cluster.get("extensions") or ():
        if named.get("name") == CONFIG_EXTENSION:
            info["config"] = named.get("extension")
    return info


def _folder(path: str | None) -> Path:
    return Path(path or "").absolute().parent
