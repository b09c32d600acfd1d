"""The page of ``dissensus open`` in a real browser, with the server in a process of its own."""

import json
import re
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from benchmarks.report import CHROMIUM, chromium
from tests.helpers.decide import SCALES, OpenProcess, saved_decisions, write_case

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.no_cover,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is absent: make browser installs it"),
]

HOSTILE = {
    "script": "<script>window.hacked = 1</script>",
    "image": "<img src=x onerror='window.hacked = 1'><svg onload='window.hacked = 1'>",
    "link": "[press](javascript:window.hacked=1) [here](  JavaScript:window.hacked=1) [d](data:text/html,x)",
    "long": "x" * 3000,
    "right": "שלום \u202e evil \u202c, and \x00 a null byte",
    "stars": "**" * 4000 + "[" * 4000 + "`" * 4001,
    "nested": "> " * 500 + "- " * 500 + "deep",
}
READY = "#view-decide[aria-busy=false] #item:not([hidden]), #view-decide[aria-busy=false] #finished:not([hidden])"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


class Visitor:
    """A page of ``dissensus open``, with its console messages."""

    def __init__(self, browser: Any, url: str, ready: str = READY, width: int = 1280, **settings: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 860}, **settings)
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.goto(url)
        self.page.wait_for_selector(ready, state="attached", timeout=60_000)

    def text(self, place: str) -> str:
        return str(self.page.locator(place).inner_text())

    @property
    def item(self) -> str:
        return str(self.page.locator("#item-title .id").text_content())

    def press(self, *keys: str, until: str = "") -> str:
        """Press keys one after the other, each when the page takes it, and return the status."""
        for key in keys:
            self.page.wait_for_selector(READY)
            self.page.keyboard.press(key)
        if until:
            self.page.wait_for_function(
                "words => document.getElementById('status').textContent.startsWith(words)", arg=until
            )
        self.page.wait_for_selector(READY)
        return self.text("#status")

    def violations(self) -> list[str]:
        """Return violations of accessibility rules; needs bypass_csp, as the page's policy blocks axe."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        return [f"{rule['id']}: {rule['nodes'][0]['html']}" for rule in axe.run(self.page).response["violations"]]


Start = Callable[..., OpenProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Open files in processes that end with the test."""
    processes: list[OpenProcess] = []

    def begin(*words: str) -> OpenProcess:
        processes.append(OpenProcess(tmp_path, *words))
        return processes[-1]

    yield begin
    for process in processes:
        process.stop()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenProcess]:
    """A page for tests that save nothing; its texts are hostile, and so is the name of a column."""
    folder = tmp_path_factory.mktemp("decide")
    texts = dict(enumerate(HOSTILE.values()))
    texts |= {20: "User: **two** chairs\nAssistant: `one`\nUser: see https://example.org/a?b=1.\nAssistant: no"}
    process = OpenProcess(folder, *write_case(folder, texts=texts))
    wait_for_fit(process)
    yield process
    process.stop()


def wait_for_fit(process: OpenProcess) -> dict[str, Any]:
    for _ in range(600):
        state = process.state()
        if state["stage"] in ("ready", "failed"):
            return state
        time.sleep(0.1)
    raise TimeoutError


# ---- deciding -----------------------------------------------------------------------------------------


def test_thirty_items_by_keyboard_alone(browser: Any, start: Start, tmp_path: Path) -> None:
    visitor = Visitor(browser, start(*write_case(tmp_path)).url)
    classes = sorted(SCALES["nominal"])
    expected: dict[str, Any] = {}
    for n in range(30):
        item = visitor.item
        assert item not in expected
        if n % 10 == 3:
            visitor.press("m")
            visitor.page.keyboard.type("1 u z n")  # keys do not decide while typing
            visitor.press("Escape")
        label = None if n % 10 == 9 else classes[n % 3]
        status = visitor.press("u" if label is None else str(n % 3 + 1), until="Saved")
        assert status == (f"Saved: ‘{label}’ for {item}" if label else f"Saved: unsure for {item}")
        expected[item] = (label, "1 u z n" if n % 10 == 3 else "")
        assert expected.keys() == saved_decisions(tmp_path).keys()
        assert visitor.page.locator(":focus").get_attribute("id") == "item-title"
    assert {m: (d["label"], d.get("note", "")) for m, d in saved_decisions(tmp_path).items()} == expected
    assert "further items" in visitor.text("#item-title")
    # undo takes the last decision back, and its item is next
    assert visitor.press("z", until="Undone") == f"Undone: {item} is open again"
    assert visitor.item == item
    assert expected.keys() - saved_decisions(tmp_path).keys() == {item}
    skipped = visitor.item
    visitor.press("n", until="Skipped")
    assert visitor.item != skipped
    # a reload continues where it was
    visitor.page.reload()
    visitor.page.wait_for_selector(READY)
    assert visitor.item not in saved_decisions(tmp_path)
    assert visitor.text("#decided-words") == "27 decided, 2 unsure"
    assert visitor.messages == []
    visitor.context.close()
