"""A creation without an answer: edl asks again, and the API server ends each request by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from edl.kube.writer import WRITE_TIMEOUT_S
from edl.model.actions import Result
from tests.kube.writer_on_fake_api import Bench, bench, create
from tests.worlds.fake_api import reset

NAME = "ctr-trainer-0"


def lost_answer(here: Bench) -> Callable[[web.Request], Any]:
    """A fault: the request takes effect, and its answer is lost."""

    async def fault(request: web.Request) -> web.Response:
        here.api._create(request.path, "ads", json.loads(await request.read()))
        return reset(request)

    return fault


def shown(here: Bench) -> list[str]:
    """The pods that the cache was told of."""
    return [body["metadata"]["name"] for _, _, body in here.seen.told]


async def test_a_pod_whose_creation_had_no_answer_is_shown_once_it_is_asked_for_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(lost_answer(here))
        assert (await here.apply(create())).result is Result.FAILED
        assert shown(here) == []
        assert (await here.apply(create())).result is Result.UNCHANGED
        assert shown(here) == [NAME]


async def test_the_api_server_ends_a_creation_before_edl_gives_it_up(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(create())
        timeout = here.api.requests[-1][2]["timeout"]
        assert 1.0 <= float(timeout.removesuffix("s")) < WRITE_TIMEOUT_S
