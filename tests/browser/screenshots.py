"""Takes the pictures of the page for the docs: `make screenshots` writes docs/images/page-{light,dark}.png.

A small cluster plays a wave of serving: trainers leave for it and come back. Half a minute, no control plane.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.browser.chromium import Tab, chromium
from tests.browser.page_cluster import JOBS, NODES, PODS, PageCluster, job, node, page_of_cluster, serving, trainer
from tests.worlds.fake_api import FakeApi

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_NODES = 6
_CTR, _VISION = 26, 21
_WAVE = (1, 3, 5, 8, 8, 8, 6, 3)
_STEP_S = 1.5


def _start() -> FakeApi:
    api = FakeApi()
    for number in range(_NODES):
        api.put(NODES, node(f"n{number:03d}"))
    api.put(JOBS, job("ctr", least=4, most=_CTR))
    api.put(JOBS, job("vision", least=2, most=_VISION))
    _place(api, 0, 0)
    return api


def _place(api: FakeApi, waves: int, waiting: int) -> None:
    """So many serving pods of two cores run, so many wait, and the trainers that fit beside them."""
    api.objects.setdefault(PODS, {})
    wanted = {f"api-{i}": serving(f"api-{i}", node=f"n{(_CTR - 2 - 2 * i) // 8:03d}") for i in range(waves)}
    wanted |= {f"api-{i}": serving(f"api-{i}", node="") for i in range(waves, waves + waiting)}
    wanted |= {f"ctr-trainer-{i}": trainer(i, node=f"n{i // 8:03d}") for i in range(_CTR - 2 * waves)}
    wanted |= {
        f"vision-trainer-{i}": trainer(i, job="vision", node=f"n{(i + _CTR) // 8:03d}") for i in range(_VISION)
    }
    for namespace, name in [key for key in api.objects[PODS] if key[1] not in wanted]:
        api.remove(PODS, name, namespace)
    for name, pod in wanted.items():
        if api.objects[PODS].get((pod["metadata"]["namespace"], name), {}).get("spec") != pod["spec"]:
            api.put(PODS, pod)


async def _play(cluster: PageCluster, tab: Tab) -> None:
    await tab.until("document.querySelectorAll('#decisions li').length >= 2")
    before = 0
    for waves in _WAVE:
        if waves > before:
            _place(cluster.api, before, waves - before)
            await asyncio.sleep(_STEP_S)
        _place(cluster.api, waves, 0)
        before = waves
        await asyncio.sleep(_STEP_S)
    cluster.api.put(JOBS, job("speech", least=40, most=60))
    _place(cluster.api, before, 2)
    await tab.until("document.querySelectorAll('#waiting-pods li, #waiting-jobs li').length === 3")
    await asyncio.sleep(_STEP_S)
    await tab.run("[...document.querySelectorAll('#marks .evicts')].at(-1).focus()")


async def _take() -> None:
    async with page_of_cluster(api=_start()) as cluster, chromium(width=1200, height=1350) as tab:
        await tab.open(cluster.address.url)
        await _play(cluster, tab)
        IMAGES.mkdir(exist_ok=True)
        for theme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": theme}]
            await tab.send("Emulation.setEmulatedMedia", features=features)
            picture = await tab.picture()
            (IMAGES / f"page-{theme}.png").write_bytes(picture)
            print(f"docs/images/page-{theme}.png: {len(picture) // 1024} KiB")


if __name__ == "__main__":
    asyncio.run(_take())
