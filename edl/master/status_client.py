"""`edl master status`: reads the status of a running master."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from edl.errors import ConfigError, PermanentError, TemporaryError
from edl.printable import printable

_TIMEOUT_S = 10.0
ANSWER_BYTES = 64 * 1024 * 1024
_FOREIGN = "the response is not from an edl master; check the address"
_PLACES = ("total", "todo", "leased", "reported", "committed", "quarantined")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect as it is: the standard handler would send the token to the next address."""

    def redirect_request(self, *_: object) -> None:
        return None


def fetch_status(url: str, token: str) -> dict[str, Any]:
    """The body of `GET /v1/status`.

    Args:
        url: the URL of the master, http or https.
        token: the token of the job.

    Raises:
        ConfigError: the URL has another form.
        PermanentError: the master refused the request, or what answers is no master.
        TemporaryError: no master answered.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"URL {url!r}: this is not the URL of a master; give http://HOST:PORT or https://HOST:PORT")
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
        url.rstrip("/") + "/v1/status", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S) as answer:
            status: dict[str, Any] = json.loads(answer.read(ANSWER_BYTES))
            return status
    except urllib.error.HTTPError as error:
        body = error.read(500).decode(errors="replace")
        raise PermanentError(f"{url}: the master refused the request: {error.code} {body}") from error
    except RecursionError as error:
        raise PermanentError(f"{url}: {_FOREIGN}") from error
    except (OSError, ValueError) as error:
        raise TemporaryError(
            f"{url}: no master answers: {error}; check the address, and that the master runs"
        ) from error


def status_text(status: dict[str, Any]) -> str:
    """The status as text, for people.

    Args:
        status: the body of `GET /v1/status`.

    Raises:
        PermanentError: it is no status of a master.
    """
    try:
        return printable("\n".join(_lines(status)))
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise PermanentError(_FOREIGN) from error


def _lines(status: dict[str, Any]) -> list[str]:
    dataset = status["dataset"] or {}
    source, epochs = dataset.get("source", "no data set yet"), dataset.get("epochs", "?")
    lines = [
        f"{status['state']}: epoch {status['epoch']} of {epochs}, {source}",
        "  ".join(f"{place} {status[place]}" for place in _PLACES),
        f"trainers: {status['sessions']['live']} live, {status['sessions']['holding']} with leases",
    ]
    if group := status.get("group"):
        lines += _group_lines(group)
    if status["blocked"]:
        lines.append(f"BLOCKED: {status['blocked']}; the master grants no leases until then")
    for holder in status["holders"]:
        rate = "speed unknown" if holder["rate"] is None else f"{holder['rate']:.1f}/s"
        lines.append(
            f"  {holder['name']}: leases {holder['leases']}  positions to do {holder['positions']}"
            f"  done {holder['done']}  {rate}"
        )
    return lines


def _group_lines(group: dict[str, Any]) -> list[str]:
    """The trainers that train in step, one line for each kind."""
    members, waiting = ", ".join(group["members"]) or "nobody", ", ".join(group["waiting"])
    lines = [f"in step: {members} (world {group['generation']})"]
    if waiting:
        lines.append(f"waiting for the next world: {waiting}")
    if goodput := group.get("goodput"):
        lines.append(_goodput_line(goodput))
    hung = (f"{one['name']} for {one['seconds']:.0f} s ({one['reason']})" for one in group.get("hung", ()))
    return [*lines, *(f"HANGS: {line}" for line in hung)]


def _goodput_line(goodput: dict[str, Any]) -> str:
    """The batch that the job has chosen, and its measured speeds."""
    noise = "not known yet" if goodput["noise_scale"] is None else f"{goodput['noise_scale']:.0f} records"
    speeds = (f"{one['trainers']} make {one['per_s']:.1f}/s" for one in goodput["speeds"] if one["is_measured"])
    return "; ".join([f"global batch {goodput['batch']}, noise scale {noise}", *speeds])
