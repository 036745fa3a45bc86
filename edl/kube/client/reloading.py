"""The credentials of a session, loaded again after the API server rejected them or changed its certificate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from kubernetes.aio.client import Configuration

from edl.errors import ConfigError
from edl.kube.client.credentials import tls_of

RELOAD_PAUSE_S = 30.0
"""Shortest time between two reloads of the credentials: an exec plugin may ask a person or a remote service."""

RELOAD_LIMIT_S, LONGEST_RELOAD_PAUSE_S = 30.0, 480.0
"""How long a reload may take, and the pause after reloads that failed again and again."""


class ReloadedCredentials:
    """A configuration with credentials, and what loads it again.

    Args:
        configuration: the first one.
        load: loads it again; None if that cannot help.

    Attributes:
        configuration: the official client's: host, credentials, TLS.
        tls: the context of `configuration`; True for the system's authorities.

    Raises:
        ConfigError: a certificate cannot be used.
    """

    def __init__(self, configuration: Configuration, load: Callable[[], Awaitable[Configuration]] | None) -> None:
        self.configuration, self.tls = configuration, tls_of(configuration)
        self._load = load
        self._loaded_s, self._pause_s = time.monotonic(), RELOAD_PAUSE_S
        self._loading: asyncio.Task[bool] | None = None

    def close(self) -> None:
        """Stop a reload that is under way."""
        if self._loading is not None:
            self._loading.cancel()

    async def has_newer(self, sent_with: Configuration, wait_s: float) -> bool:
        """Return whether there are newer credentials than those of a failed call; load them if necessary.

        One reload serves all calls. It goes on if the calls that wait for it end.

        Args:
            sent_with: the configuration of the call.
            wait_s: how long to wait for a reload, in seconds.
        """
        if self.configuration is not sent_with:
            return True
        if self._load is None:
            return False
        if self._loading is None:
            if time.monotonic() - self._loaded_s < self._pause_s:
                return False
            self._loading = asyncio.create_task(self._load_once(self._load))
        done, _ = await asyncio.wait({self._loading}, timeout=wait_s)
        return any(not task.cancelled() and task.result() for task in done)

    async def _load_once(self, load: Callable[[], Awaitable[Configuration]]) -> bool:
        """Load within a time limit: an exec plugin may hang. After a failure the pause doubles."""
        try:
            async with asyncio.timeout(RELOAD_LIMIT_S):
                configuration = await load()
            self.tls = tls_of(configuration)
        except (ConfigError, TimeoutError):
            self._pause_s = min(LONGEST_RELOAD_PAUSE_S, 2 * self._pause_s)
            return False
        finally:
            self._loaded_s, self._loading = time.monotonic(), None
        self.configuration, self._pause_s = configuration, RELOAD_PAUSE_S
        return True
