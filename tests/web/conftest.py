"""A headless Chromium, driven by the DevTools protocol, and pages without a broker behind them."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import Topics
from stream_dp.pipeline.watch.health import Health
from stream_dp.web.access import Access
from stream_dp.web.pages import Pages
from tests.waiting import PATIENCE_S, until

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_PALE = """
(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = parts(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const pale = [];
  for (const one of document.querySelectorAll("body *")) {
    const says = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!says || !one.checkVisibility() || one.closest("tr.fresh") || one.disabled) continue;
    const style = getComputedStyle(one);
    const colour = parts(one instanceof SVGElement ? style.fill : style.color);
    const [dim, bright] = [light(colour), light(behind(one))].sort((a, b) => a - b);
    if ((bright + 0.05) / (dim + 0.05) < 4.5) pale.push(`${one.textContent}: ${style.color}`);
  }
  return pale;
})()
"""


class Navigated(Exception):
    """Another page took the place of the one that was asked."""


class Browser:
    """The browser's process and its connection.

    Raises:
        ServerUnavailable: There is no Chromium here.
    """

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            raise ServerUnavailable("there is no chromium on this machine")
        self._log = (folder / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=self._log,
            stderr=self._log,
        )
        self._loop = asyncio.new_event_loop()
        self._numbers = itertools.count(1)
        self._events: list[dict[str, Any]] = []
        self._socket = self._run(self._connect(*self._address(folder / "profile")))

    def _address(self, profile: Path) -> tuple[str, str]:
        """Port and path that the browser has chosen."""
        place = profile / "DevToolsActivePort"

        def told() -> bool:
            assert self._process.poll() is None, "chromium ended"
            return place.exists() and len(place.read_text().split()) == 2

        until(told, "chromium does not start")
        port, path = place.read_text().split()
        return port, path

    async def _connect(self, port: str, path: str) -> aiohttp.ClientWebSocketResponse:
        self._session = aiohttp.ClientSession()
        return await self._session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))

    def call(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command; what it returns."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        return dict(self._run(self._exchange(number, json.dumps(message))))

    async def _exchange(self, number: int, message: str) -> dict[str, Any]:
        await self._socket.send_str(message)
        while True:
            reply = json.loads(await self._socket.receive_str())
            if reply.get("id") == number:
                if "navigated" in reply.get("error", {}).get("message", ""):
                    raise Navigated
                assert "error" not in reply, reply["error"]
                return dict(reply["result"])
            self._events.append(reply)

    def events(self, session: str, *methods: str) -> list[dict[str, Any]]:
        """What a page has told so far."""
        return [
            event
            for event in self._events
            if event.get("sessionId") == session and event["method"] in methods
        ]

    def open(self, url: str, *, width: int = 1280, dark: bool = False) -> Page:
        """A new page in a profile of its own."""
        return Page(self, url, width=width, dark=dark)

    def close(self) -> None:
        self._run(self._socket.close())
        self._run(self._session.close())
        self._loop.close()
        self._process.terminate()
        self._process.wait()
        self._log.close()


class Page:
    """One page in a context of its own: it shares no cookie with others."""

    def __init__(self, browser: Browser, url: str, *, width: int, dark: bool) -> None:
        self._browser = browser
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call(
            "Target.createTarget", url="about:blank", browserContextId=self._context
        )["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width)
        self.go(url)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, session=self._session, **parameters)

    def resize(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, once it is settled."""
        reply = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def text(self, selector: str = "body") -> str:
        """What a person reads there."""
        found = self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    def until(self, script: str) -> None:
        """Waits until an expression holds."""
        until(
            lambda: self.evaluate(f"document.readyState === 'complete' && Boolean({script})"),
            lambda: f"never true: {script}\n{self.text()}\n{self.errors()}",
            ignoring=(Navigated,),
        )

    def until_text(self, text: str, selector: str = "body") -> None:
        """Waits until a text is there to be read."""
        self.until(
            f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})"
        )

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def write(self, selector: str, text: str) -> None:
        """Writes into a field in place of what is there."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"({place}.focus(), {place}.select())")
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        more = {"windowsVirtualKeyCode": 13, "text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def overflow(self) -> list[str]:
        """What sticks out of the window to the right, and is not in a part that scrolls by itself."""
        found: list[str] = self.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] :"
            "[...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll, pre') &&"
            "one.getBoundingClientRect().right > document.documentElement.clientWidth)"
            ".map((one) => one.outerHTML.slice(0, 200))"
        )
        return found

    def pale(self) -> list[str]:
        """Texts with less contrast than WCAG asks of small ones, 4.5 to 1."""
        found: list[str] = self.evaluate(_PALE)
        return found

    def errors(self) -> list[str]:
        """What the console shows in red."""
        self.evaluate("0")  # so that what was told before is here
        told = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        found = [event["params"] for event in self._browser.events(self._session, *told)]
        kinds = [one.get("type") or one.get("entry", {}).get("level", "error") for one in found]
        return [json.dumps(one) for one, kind in zip(found, kinds, strict=True) if kind == "error"]

    def close(self) -> None:
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)


@pytest.fixture(scope="module")
def browser(
    tmp_path_factory: pytest.TempPathFactory, needed: Callable[[], Any]
) -> Iterator[Browser]:
    """One Chromium for a module."""
    with needed():
        started = Browser(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


def pages_of(access: Access, health: Callable[[], Health] = Health) -> Pages:
    """Pages without a broker behind them."""
    return Pages(access, broker=Broker("127.0.0.1:1"), topics=Topics(), health=health)


Browse: TypeAlias = Callable[[Access], Awaitable[TestClient[Any, Any]]]


@pytest.fixture
async def browse() -> AsyncIterator[Browse]:
    """``await browse(access)``: a client of the pages, which keeps cookies, and of a page of metrics."""
    async with AsyncExitStack() as stack:

        async def metrics(_: web.Request) -> web.Response:
            return web.Response(text="figures")

        async def browse(access: Access) -> TestClient[Any, Any]:
            app = web.Application()
            pages_of(access).install(app)
            app.router.add_get("/metrics", metrics)
            return await stack.enter_async_context(TestClient(TestServer(app)))

        yield browse
