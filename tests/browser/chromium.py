"""A headless Chromium: one process, one tab, and the DevTools protocol over a websocket.

Source of the protocol: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

INSTALL = "apt-get install --no-install-recommends chromium"
TIMEOUT_S = 30.0


_GONE = -32000
"""The code of the protocol for a document that the tab has left while an answer was due."""


class LeftError(AssertionError):
    """The tab went to another document before the answer."""


class Tab:
    """One tab.

    Attributes:
        console: every error and warning of the console, and every uncaught exception.
        requested: the URL of every request that the tab sent.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.console: list[str] = []
        self.requested: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self) -> None:
        """Receive answers and events until the tab is closed."""
        async for message in self._socket:
            body = json.loads(message.data)
            if "id" in body:
                waiting = self._answers.pop(body["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(body)
            else:
                self._take(body["method"], body["params"])

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(TIMEOUT_S):
            body = await answer
        if body.get("error", {}).get("code") == _GONE:
            raise LeftError(method, body["error"])
        assert "error" not in body, (method, body["error"])
        result: dict[str, Any] = body["result"]
        return result

    async def open(self, url: str) -> None:
        """Go to an address."""
        await self.send("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        found = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (script, found["exceptionDetails"])
        return found["result"].get("value")

    async def until(self, script: str, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait until an expression is true, and return its value; looks again after each change of the document.

        If the tab goes to another document meanwhile, the expression is looked at there.
        """
        body = f"""new Promise((done, fail) => {{
            const look = () => {{ let found; try {{ found = ({script}); }} catch {{ found = null; }}
                if (found) {{ clearTimeout(late); watcher.disconnect(); done(found); }} }};
            const watcher = new MutationObserver(look);
            watcher.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
            const late = setTimeout(() => {{ watcher.disconnect(); fail(new Error('never true')); }},
                {timeout_s * 900});
            look(); }})"""
        async with asyncio.timeout(timeout_s):
            while True:
                with suppress(LeftError):
                    return await self.run(body)

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other; a single character is typed."""
        for key in keys:
            more = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
            code = _CODES.get(key, 0)
            await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
            await self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def picture(self) -> bytes:
        """A PNG of what the tab shows."""
        found = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])

    def _take(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.console.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "warning", "assert"}:
            self.console.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in {"error", "warning"}:
            self.console.append(parameters["entry"]["text"])


_CODES = {
    "Tab": 9,
    "Enter": 13,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


@asynccontextmanager
async def chromium(*, width: int = 1280, height: int = 1000) -> AsyncIterator[Tab]:
    """A tab of a new Chromium; at the end neither the process nor its folder is left."""
    program = shutil.which("chromium")
    assert program is not None, f"the page is tested in Chromium, which is not installed; as root: {INSTALL}"
    profile = tempfile.mkdtemp(prefix="edl-chromium-")
    arguments = [
        *("--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run"),
        *("--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--disable-dev-shm-usage", "--no-proxy-server", f"--window-size={width},{height}", "about:blank"),
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = await _port(Path(profile) / "DevToolsActivePort", process)
        async with _tab(port, width, height) as tab:
            yield tab
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


@asynccontextmanager
async def _tab(port: int, width: int, height: int) -> AsyncIterator[Tab]:
    async with aiohttp.ClientSession() as client:
        async with client.get(f"http://127.0.0.1:{port}/json/list") as response:
            pages = [one for one in await response.json() if one["type"] == "page"]
        async with client.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = Tab(socket)
            listening = asyncio.create_task(tab.listen())
            for domain in ("Page", "Runtime", "Network", "Log"):
                await tab.send(f"{domain}.enable")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            await tab.send("Emulation.setDeviceMetricsOverride", **size)
            await tab.send("Emulation.setFocusEmulationEnabled", enabled=True)
            try:
                yield tab
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    """The port that Chromium writes into a file once it listens."""
    async with asyncio.timeout(2 * TIMEOUT_S):
        while not (port := _first_line(file)):
            assert process.returncode is None, f"Chromium ended with code {process.returncode}"
            await asyncio.sleep(0.05)
    return int(port)


def _first_line(file: Path) -> str:
    """The first line of a file; empty while it is not complete."""
    line, end, _ = file.read_text().partition("\n") if file.exists() else ("", "", "")
    return line if end else ""
