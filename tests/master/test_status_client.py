"""`edl master status` asks a program that may be anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edl.errors import PermanentError
from edl.master.status_client import fetch_status, status_text
from tests.worlds.master_server import TOKEN, serving


async def fetched(answer: web.Response, seen: list[str]) -> dict[str, Any]:
    """What is read from a server that answers each request with one response; notes the paths."""

    async def handle(request: web.BaseRequest) -> web.Response:
        seen.append(request.path)
        return answer

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        return await asyncio.to_thread(fetch_status, f"http://127.0.0.1:{runner.addresses[0][1]}", TOKEN)
    finally:
        await runner.cleanup()


async def test_the_token_does_not_follow_a_redirect() -> None:
    seen: list[str] = []
    with pytest.raises(PermanentError, match="refused the request: 302"):
        await fetched(web.Response(status=302, headers={"Location": "/stolen"}), seen)
    assert seen == ["/v1/status"]


async def test_an_answer_that_nests_without_end_is_an_error() -> None:
    with pytest.raises(PermanentError, match="not from an edl master"):
        await fetched(web.Response(body=b"[" * 200_000), [])


@pytest.mark.parametrize("status", [[], {}, {"dataset": 1}, {"dataset": {}, "state": "running"}])
def test_an_answer_that_is_no_status_is_an_error(status: Any) -> None:
    with pytest.raises(PermanentError, match="not from an edl master"):
        status_text(status)


def test_a_number_beyond_any_float_is_an_error() -> None:
    holder = {"name": "a", "leases": 1, "positions": 3, "done": 4, "rate": 10**400}
    status = dict.fromkeys(("total", "todo", "leased", "reported", "committed", "quarantined"), 3)
    with pytest.raises(PermanentError, match="not from an edl master"):
        status_text(
            status
            | {"state": "running", "epoch": 0, "dataset": None, "blocked": None, "holders": [holder]}
            | {"sessions": {"live": 1, "holding": 1}}
        )


async def test_names_are_no_commands_for_the_terminal(tmp_path: Path) -> None:
    async with serving(tmp_path, shard_size=10) as served:
        assert (await served.sync("\x1b[2Ja", 1, want=1))[0] == 200
        text = status_text((await served.ask("GET", "/v1/status"))[1])
    assert r"\u001b[2Ja: leases 1" in text
    assert "\x1b" not in text


async def test_the_batch_that_a_job_has_chosen_and_its_speeds_are_printed(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        status = (await served.ask("GET", "/v1/status"))[1]
    speeds = [{"trainers": count, "per_s": 10.0 * count, "is_measured": count < 3} for count in (1, 2, 3)]
    group = {"generation": 1, "members": ["a"], "waiting": []}
    group |= {"goodput": {"batch": 128, "noise_scale": None, "speeds": speeds}}
    text = status_text({**status, "group": group})
    assert "global batch 128, noise scale not known yet; 1 make 10.0/s; 2 make 20.0/s\n" in text + "\n"
    group["goodput"] = {"batch": 128, "noise_scale": 300.4, "speeds": []}
    assert "global batch 128, noise scale 300 records\n" in status_text({**status, "group": group}) + "\n"
