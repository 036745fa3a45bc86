"""The page in a real Chromium: live, by keyboard, for screen readers, light and dark, and safe from hostile names."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.chromium import Tab, chromium
from tests.browser.page_cluster import (
    HOSTILE,
    JOBS,
    NODES,
    PASTED,
    PODS,
    PageCluster,
    fill,
    job,
    node,
    page_of_cluster,
    serving,
)
from tests.worlds.fake_api import FakeApi

READY = "document.querySelectorAll('#decisions li').length >= 2 && document.querySelectorAll('.node').length"
ROW_OF_CTR = "[...document.querySelectorAll('#jobs tbody tr')].find(row => row.dataset.job == 'ads/ctr')"
TRAINERS_OF_CTR = f"{ROW_OF_CTR}.cells[2].textContent"
FOCUSED = "document.activeElement"
CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text()


@asynccontextmanager
async def opened(cluster: PageCluster, *, ready: str = READY) -> AsyncIterator[Tab]:
    """The page of a cluster; at the end the console must be empty and no other origin may have been asked."""
    async with chromium() as tab:
        await tab.open(cluster.address.url)
        await tab.until(ready)
        yield tab
        assert tab.console == []
        origins = {f"{url.scheme}://{url.netloc}" for url in map(urlsplit, tab.requested)}
        assert origins == {f"http://{urlsplit(cluster.address.url).netloc}"}


async def test_a_change_on_the_cluster_appears_without_a_reload() -> None:
    async with page_of_cluster() as cluster, opened(cluster) as tab:
        await tab.run("window.isTheSamePage = true")
        assert await tab.run(TRAINERS_OF_CTR) == "3"
        cluster.start_trainer(3)
        await tab.until(f"{TRAINERS_OF_CTR} === '4'")
        blocks = "document.querySelectorAll('.node[data-name=n000] .block').length"
        assert await tab.run(blocks) == 4
        cluster.api.put(NODES, node("n004"))
        await tab.until("document.querySelectorAll('.node').length === 5")
        cluster.api.remove(NODES, "n004")
        await tab.until("document.querySelectorAll('.node').length === 4")
        cluster.api.put(PODS, serving("waits", node="", cpu="1"))
        await tab.until("document.getElementById('summary').textContent.includes('1 waiting')")
        assert await tab.run("window.isTheSamePage") is True


async def test_a_new_decision_is_listed_with_its_certificate_and_announced_politely() -> None:
    async with page_of_cluster() as cluster, opened(cluster) as tab:
        cluster.api.put(JOBS, job("late"))
        await tab.until("document.querySelector('#decisions li strong').textContent === 'ads/late'")
        text = await tab.run("document.querySelector('#decisions li').textContent")
        assert "Certificate: fulfilment" in text
        await tab.until("document.getElementById('announcer').textContent.startsWith('ads/late: ')")
        assert await tab.run("document.getElementById('announcer').getAttribute('aria-live')") == "polite"


async def test_marks_and_the_waiting_tell_who_ends_for_whom() -> None:
    api = FakeApi()
    fill(api, nodes=2)
    async with page_of_cluster(api=api) as cluster, opened(cluster) as tab:
        assert await tab.run("document.getElementById('waiting-none').hidden") is False
        cluster.api.put(PODS, serving("waits", node="", cpu="7"))
        cluster.api.put(JOBS, job("late", least=20, most=40))
        await tab.until("document.querySelector('#marks .evicts')")
        await tab.until("document.querySelector('#waiting-jobs button')")
        waiting = await tab.run("document.getElementById('waiting-title').parentElement.textContent")
        assert "serving pod web/waits since" in waiting
        assert "7 cores, 1 GiB of memory): no node has enough free cpu" in waiting
        assert "job ads/late: " in waiting
        assert await tab.run("document.querySelector('#jobs tbody tr').dataset.job") == "ads/late"
        await tab.run("document.querySelector('#marks [tabindex=\"0\"]').focus()")
        await tab.press("Home")
        assert await tab.run(f"{FOCUSED} === document.querySelector('#marks button')")
        for _ in range(
            await tab.run(
                "[...document.querySelectorAll('#marks button')].findIndex(b => b.className == 'mark evicts')"
            )
        ):
            await tab.press("ArrowRight")
        tip = "document.getElementById('mark')"
        await tab.until(f"!{tip}.hidden && {tip}.textContent.includes('web/waits')")
        text = await tab.run(f"{tip}.textContent")
        assert "deleted for web/waits (ServingNeedsRoom): " in text
        await tab.press("Escape")
        assert await tab.run(f"{tip}.hidden") is True
        await tab.run("document.querySelector('#waiting-jobs button').focus()")
        await tab.press("Enter")
        await tab.until("document.getElementById('job-title').textContent === 'Why ads/late has its trainers'")
        await tab.run("document.getElementById('job-close').click()")
        assert await tab.run(f"{FOCUSED}.closest('ul').id") == "waiting-jobs"


async def test_everything_is_reached_by_keyboard() -> None:
    async with page_of_cluster() as cluster, opened(cluster) as tab:
        await tab.press("Tab")
        assert await tab.run(f"{FOCUSED}.className") == "skip"
        await tab.run("document.getElementById('node-filter').focus()")
        await tab.press("Tab")
        assert await tab.run(f"{FOCUSED}.dataset.name") == "n000"
        assert await tab.run(f"getComputedStyle({FOCUSED}).outlineStyle") == "solid"
        await tab.press("ArrowRight")
        assert await tab.run(f"{FOCUSED}.dataset.name") == "n001"
        await tab.press("End")
        assert await tab.run(f"{FOCUSED}.dataset.name") == "n003"
        await tab.press("Home", "ArrowRight", "Enter")
        await tab.until("document.getElementById('node-body').textContent.includes('web/front-1')")
        assert await tab.run(f"{FOCUSED}.id") == "node-title"
        await tab.press("Tab", "Enter")
        assert await tab.run("document.getElementById('node').hidden") is True
        assert await tab.run(f"{FOCUSED}.dataset.name") == "n001"
        await tab.press("Tab", "Enter")
        await tab.until("document.querySelectorAll('#nodes-rows tbody tr').length === 4")
        await tab.run("document.querySelector('#history-table summary').focus()")
        await tab.press("Enter")
        await tab.until("document.querySelectorAll('#history-rows tbody tr').length >= 1")
        await tab.run("document.getElementById('job-filter').focus()")
        await tab.press("Tab", "Enter")
        await tab.until("document.getElementById('job-body').textContent.includes('What would help')")
        assert await tab.run("document.getElementById('job-title').textContent") == "Why ads/ctr has its trainers"


async def test_a_pasted_job_is_compared() -> None:
    async with page_of_cluster() as cluster, opened(cluster) as tab:
        await tab.run("document.getElementById('whatif-text').focus()")
        await tab.send("Input.insertText", text=PASTED)
        await tab.press("Tab", "Enter")
        await tab.until("document.querySelector('#whatif-result table')")
        result = await tab.run("document.getElementById('whatif-result').textContent")
        assert "ads/new" in result
        assert "Certificate: fulfilment" in result
        assert {method for method, _, _ in cluster.api.requests} == {"GET"}


async def test_hostile_names_are_shown_as_they_are() -> None:
    api = FakeApi()
    fill(api)
    api.put(NODES, node(HOSTILE))
    bad = job("bad")
    trainer_of_bad = {**bad["spec"]["trainer"], "min-instance": HOSTILE}
    api.put(JOBS, {**bad, "spec": {**bad["spec"], "trainer": trainer_of_bad}})
    api.put(PODS, serving(HOSTILE, node=HOSTILE))
    async with page_of_cluster(api=api) as cluster, opened(cluster, ready=f"{READY} === 5") as tab:
        names = await tab.run("[...document.querySelectorAll('.node .name')].map(e => e.textContent)")
        assert HOSTILE in names
        assert "onerror" in await tab.run("document.querySelector('#jobs tbody').textContent")
        await tab.run("document.querySelector('.node').click()")
        await tab.until("document.getElementById('node-body').textContent.includes('onerror')")
        assert await tab.run("document.querySelectorAll('img, script:not([src]), [onerror]').length") == 0


async def test_a_screen_reader_finds_landmarks_headings_names_and_tables() -> None:
    async with page_of_cluster() as cluster, opened(cluster) as tab:
        await tab.send("Accessibility.enable")
        tree = (await tab.send("Accessibility.getFullAXTree"))["nodes"]
        seen = [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in tree if not one["ignored"]]
        roles = {role for role, _ in seen}
        assert {"banner", "main", "region", "status"} <= roles
        headings = [name for role, name in seen if role == "heading"]
        assert headings == [
            "edl",
            *("Cluster", "Waiting", "Capacity and use over time", "Jobs", "Nodes", "Decisions", "What if"),
        ]
        controls = [pair for pair in seen if pair[0] in {"button", "combobox", "searchbox", "textbox", "image"}]
        assert [pair for pair in controls if not pair[1].strip()] == []
        assert ("button", "node n002: ready; 8 cores of 8 free") in seen
        chart, *bands = [name for role, name in seen if role == "image"]
        assert "cores over 1 minute: capacity between 32 and 32, now 32;" in chart
        assert "used by jobs between 5 and 5, now 5; at most 0 pods waited, now 0" in chart
        assert bands == ["between 3 and 3 trainers, now 3", "between 2 and 2 trainers, now 2"]
        columns = "trainers over time, now and planned, bounds, and the reason"
        assert ("table", f"Jobs, those that wait first: {columns}") in seen


@pytest.mark.parametrize("system", ["light", "dark"])
async def test_light_and_dark_follow_the_system_and_the_switch_and_can_be_read(system: str) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}
    other = "dark" if system == "light" else "light"
    async with page_of_cluster() as cluster, opened(cluster) as tab:
        features = [{"name": "prefers-color-scheme", "value": system}]
        await tab.send("Emulation.setEmulatedMedia", features=features)
        assert await tab.run(background) == colours[system]
        await tab.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        await tab.run("document.querySelector('#jobs button').click()")
        await tab.until("document.getElementById('job-body').textContent.includes('What would help')")
        ratios = await tab.run(CONTRASTS)
        assert len(ratios) > 50
        assert [pair for pair in ratios if pair[0] < 4.5] == []
        switch = "document.getElementById('theme')"
        await tab.run(f"{switch}.value = '{other}'; {switch}.dispatchEvent(new Event('change'));")
        assert await tab.run(background) == colours[other]
        await tab.send("Page.reload")
        await tab.until(f"{switch}?.value === '{other}' && {background} === '{colours[other]}'")
        await tab.until(READY)


async def test_a_page_that_needs_a_token_asks_for_it_and_forgets_it() -> None:
    is_asked = "document.getElementById('login') && !document.getElementById('login').hidden"
    async with page_of_cluster(listen="0.0.0.0:0") as cluster, chromium() as tab:
        address = f"http://127.0.0.1:{urlsplit(cluster.address.url).port}/page/"
        await tab.open(address)
        await tab.until(is_asked)
        assert "n000" not in await tab.run("document.body.textContent")
        await tab.send("Input.insertText", text="wrong")
        await tab.press("Enter")
        await tab.until("document.getElementById('login-error').textContent.includes('the token is wrong')")
        await tab.send("Input.insertText", text=cluster.address.token)
        await tab.press("Enter")
        await tab.until(READY)
        await tab.send("Page.reload")
        await tab.until(READY)
        await tab.run("document.getElementById('logout').click()")
        await tab.until(is_asked)
        assert "n000" not in await tab.run("document.body.textContent")
        await tab.open("about:blank")
        await tab.open(f"{address}#token={cluster.address.token}")
        await tab.until(READY)
        assert await tab.run("location.hash") == ""
        assert await tab.run("document.cookie") == ""


async def test_a_thousand_nodes_stay_usable() -> None:
    api = FakeApi()
    fill(api, nodes=1000)
    for number in range(3000):
        api.put(PODS, serving(f"s{number:04d}", node=f"n{number % 1000:03d}", cpu="1"))
    async with page_of_cluster(api=api) as cluster, opened(cluster, ready=f"{READY} === 1000") as tab:
        began = time.monotonic()
        cluster.start_trainer(3, node="n500")
        await tab.until("document.querySelector('.node[data-name=n500]').ariaLabel.includes('1 trainer of ads/ctr')")
        seconds = time.monotonic() - began
        frame = await tab.run(
            "new Promise(done => { const from = performance.now(), select = document.getElementById('resource');"
            " select.value = 'memory'; select.dispatchEvent(new Event('change'));"
            " requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - from))); })"
        )
        elements = await tab.run("document.querySelectorAll('*').length")
        print(
            f"1,000 nodes: a change shown after {seconds:.1f} s, all redrawn in {frame:.0f} ms, {elements} elements"
        )
        assert seconds < 10
        assert frame < 5_000
        assert elements < 12_000
