"""The address of the API server and the credentials for it, read by the official client's loader.

The loader finds them as kubectl does: kubeconfig, exec plugins, client certificates, service account. But it reads a
missing file as an empty one. Here that is an error that names the file and the remedy.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from edl.errors import ConfigError
from edl.kube.client.api_errors import one_line
from edl.kube.client.exec_plugin import PluginError, load_kubeconfig


class KubeconfigConfiguration(Configuration):
    """A configuration with what the official client's loader leaves out.

    Attributes:
        impersonate: (header, value) of the user in whose name every request is sent.
    """

    impersonate: tuple[tuple[str, str], ...] = ()


SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds the name of its namespace."""


async def load_configuration(kubeconfig: str = "") -> Configuration:
    """Load the configuration that kubectl would load; see `ApiSession.open` for the order of the places.

    Raises:
        ConfigError: there is no configuration, or it cannot be used.
    """
    configuration = KubeconfigConfiguration()
    configuration.disable_strict_ssl_verification = True  # like kubectl: many clusters' CAs have no AKI
    default = Path.home() / ".kube" / "config"
    paths = kubeconfig or os.environ.get("KUBECONFIG", "") or (str(default) if default.exists() else "")
    origin = f"kubeconfig {paths}" if paths else "the service account"
    try:
        if paths:
            _require_one_file(paths)
            merged = await load_kubeconfig(paths, configuration)
            configuration.impersonate = _impersonation(paths, merged)
        elif "KUBERNETES_SERVICE_HOST" in os.environ:
            kube_config.load_incluster_config(client_configuration=configuration)
        else:
            raise ConfigError(
                f"edl knows no cluster: {default} does not exist, and edl does not run in a pod; "
                "give --kubeconfig FILE or set KUBECONFIG"
            )
    except PluginError as error:
        raise ConfigError(f"{origin} gives no credentials: {error}") from error
    except ConfigError:
        raise
    except (kube_config.ConfigException, OSError, yaml.YAMLError, LookupError, ValueError) as error:
        raise ConfigError(f"{origin} cannot be used: {one_line(error)}") from error
    except (AttributeError, TypeError) as error:  # what the loader raises if a file holds no mapping
        raise ConfigError(
            f"{origin} cannot be used: it is not a kubeconfig; give a file that kubectl reads"
        ) from error
    if not str(configuration.host).startswith(("http://", "https://")):
        raise ConfigError(f"{origin}: server {configuration.host!r} is not a URL; write https://HOST:PORT")
    return configuration


def impersonation_of(configuration: Configuration) -> tuple[tuple[str, str], ...]:
    """The headers with which requests are sent in the name of another user; none without `as` in the kubeconfig."""
    return configuration.impersonate if isinstance(configuration, KubeconfigConfiguration) else ()


def proxy_of_environment(host: str) -> str | None:
    """The proxy that the environment names for a server, as kubectl reads it; None if there is none for it.

    It is read once: aiohttp would read the environment and ~/.netrc for each request, in a thread.

    Args:
        host: the URL of the server.
    """
    url = urlsplit(host)
    if _is_in_no_proxy(url.hostname or "") or proxy_bypass(url.hostname or ""):
        return None
    return getproxies().get(url.scheme)


def _is_in_no_proxy(host: str) -> bool:
    """True if $NO_PROXY names a network that contains the address, which `proxy_bypass` does not read."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for part in (os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or "").split(","):
        with suppress(ValueError):
            if "/" in part and address in ipaddress.ip_network(part.strip(), strict=False):
                return True
    return False


def _impersonation(paths: str, merged: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The headers for `as`, `as-uid`, `as-groups` and `as-user-extra` of the user of the current context.

    Raises:
        ConfigError: groups without a user, which the API server would reject.
    """
    named = {
        kind: {entry.value["name"]: entry.value for entry in merged.get(kind) or ()} for kind in ("contexts", "users")
    }
    context = (named["contexts"].get(merged.get("current-context")) or {}).get("context") or {}
    user = (named["users"].get(context.get("user")) or {}).get("user") or {}
    headers = [("Impersonate-User", user["as"])] if user.get("as") else []
    headers += [("Impersonate-Uid", user["as-uid"])] if user.get("as-uid") else []
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    extra = user.get("as-user-extra") or {}
    headers += [
        (f"Impersonate-Extra-{quote(key.lower(), safe='')}", value) for key in sorted(extra) for value in extra[key]
    ]
    if headers and not user.get("as"):
        raise ConfigError(f"kubeconfig {paths}: as-groups, as-uid or as-user-extra without as; set as to a user")
    return tuple((name, str(value)) for name, value in headers)


def configuration_of_caller(configuration: Configuration, token: str) -> Configuration:
    """Return a configuration for the same server that has a caller's token as its only credential.

    Only what leads to the server is taken over. A client certificate would make the server see this process instead
    of the caller: it counts before a token.
    """
    api_key = {"authorization": f"Bearer {token}"}
    bare = Configuration(host=str(configuration.host), api_key=api_key, verify_ssl=configuration.verify_ssl)
    bare.ssl_ca_cert, bare.ca_cert_data = configuration.ssl_ca_cert, configuration.ca_cert_data
    bare.tls_server_name = configuration.tls_server_name
    bare.disable_strict_ssl_verification = configuration.disable_strict_ssl_verification
    bare.proxy, bare.proxy_headers = configuration.proxy, configuration.proxy_headers
    return bare


def current_namespace(kubeconfig: str = "") -> str:
    """Return the namespace that kubectl would use: that of the current context, else of the pod, else `default`."""
    default = Path.home() / ".kube" / "config"
    paths = kubeconfig or os.environ.get("KUBECONFIG", "") or (str(default) if default.exists() else "")
    if not paths:
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip() if SERVICE_ACCOUNT_NAMESPACE.exists() else "default"
    if not _one_exists(paths):
        return "default"  # the loader would print a line of its own
    try:
        _, current = kube_config.list_kube_config_contexts(config_file=paths)
        return str((current.get("context") or {}).get("namespace") or "default")
    except (kube_config.ConfigException, OSError, yaml.YAMLError, LookupError, TypeError, AttributeError):
        return "default"  # reading the credentials reports what is wrong with the file


def tls_of(configuration: Configuration) -> ssl.SSLContext | bool:
    """Return the TLS settings as aiohttp takes them: True means its defaults.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    if not str(configuration.host).startswith("https://"):
        return True
    try:
        context: ssl.SSLContext = RESTClientObject(configuration).ssl_context
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificates for {configuration.host} cannot be used: {one_line(error)}") from error
    return context


def _require_one_file(paths: str) -> None:
    """Raise a ConfigError if no kubeconfig exists; the loader would read an empty one instead."""
    if not _one_exists(paths):
        raise ConfigError(f"kubeconfig {paths} does not exist; give the path of a readable file")


def _one_exists(paths: str) -> bool:
    return any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path)
