"""`edl master status`: asks a master what it holds."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from edl.errors import ConfigError, PermanentError, TemporaryError

_TIMEOUT_S = 10.0


def fetch_status(url: str, token: str) -> dict[str, Any]:
    """The answer of `GET /v1/status`.

    Args:
        url: of the master, http or https.
        token: of the job.

    Raises:
        ConfigError: the address is none.
        PermanentError: the master refuses.
        TemporaryError: nobody answers there.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"URL {url!r}: give http://HOST:PORT or https://HOST:PORT")
    request = urllib.request.Request(  # noqa: S310 the scheme was judged
        url.rstrip("/") + "/v1/status", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise PermanentError(f"{url}: the master refuses: {error.read(500).decode(errors='replace')}") from error
    except (OSError, ValueError) as error:
        raise TemporaryError(f"{url}: no master answers there: {error}") from error


def status_text(status: dict[str, Any]) -> str:
    """For people."""
    dataset = status["dataset"] or {}
    source, epochs = dataset.get("source", "no data set"), dataset.get("epochs", "?")
    lines = [
        f"{status['state']}: epoch {status['epoch']} of {epochs}, {source}",
        "  ".join(
            f"{place} {status[place]}"
            for place in ("total", "todo", "leased", "reported", "committed", "quarantined")
        ),
        f"trainers: {status['sessions']['live']} live, {status['sessions']['holding']} with leases",
    ]
    if status["blocked"]:
        lines.append(f"BLOCKED: {status['blocked']}")
    for holder in status["holders"]:
        rate = "-" if holder["rate"] is None else f"{holder['rate']:.1f}/s"
        lines.append(
            f"  {holder['name']}: {holder['leases']} leases, {holder['positions']} to do,"
            f" {holder['done']} done, {rate}"
        )
    return "\n".join(lines)
