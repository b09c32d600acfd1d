"""The page of ``dissensus open`` in a real browser, with the server in a process of its own."""

import base64
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
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
    "table": "|".join("ab" * 2000) + "\n" + "|".join("-" * 4000) + "\n|" * 4000 + "\n-" + " " * 9000 + "x",
}
# a PNG file of one pixel
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
READY = "#view-decide[aria-busy=false] :is(#item, #finished):not([hidden])"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


class Visitor:
    """A page of ``dissensus open``, with its console messages."""

    def __init__(
        self, browser: Any, url: str, ready: str = READY, width: int = 1280, **settings: Any
    ) -> None:
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
        rules = axe.run(self.page).response["violations"]
        return [f"{rule['id']}: {rule['nodes'][0]['html']}" for rule in rules]


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
    """A page for tests that save nothing; some of its texts are hostile."""
    folder = tmp_path_factory.mktemp("decide")
    texts = dict(enumerate(HOSTILE.values()))
    said = "User: **two** chairs", "Assistant: `one`", "User: see https://example.org/a?b=1."
    texts[20] = "\n".join([*said, "Assistant: no"])
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
    assert visitor.text("#item-title").startswith("Further item ")
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


def test_a_decision_is_saved_once_and_only_then_confirmed(browser: Any, start: Start, tmp_path: Path) -> None:
    """A failed save keeps the item; held keys and double clicks decide one item."""
    visitor = Visitor(browser, start(*write_case(tmp_path)).url)
    page, item = visitor.page, visitor.item
    page.route("**/decide", lambda route: route.abort())
    page.keyboard.press("1")
    page.wait_for_selector("#alert button")
    assert "Not saved: The server does not answer" in visitor.text("#alert")
    assert (visitor.item, visitor.text("#status")) == (item, "")
    page.unroute("**/decide")
    page.click("#alert button")
    assert visitor.press(until="Saved") == f"Saved: ‘maybe’ for {item}"
    assert visitor.text("#alert") == ""
    page.route("**/decide", lambda route: route.fulfill(status=507, json={"error": "not saved: disk full"}))
    item = visitor.item
    page.keyboard.press("2")
    page.wait_for_selector("#alert button")
    assert "disk full" in visitor.text("#alert")
    assert visitor.item == item
    page.unroute("**/decide")
    for _ in range(5):
        page.keyboard.down("3")  # from the second time on, a repetition
    page.keyboard.up("3")
    visitor.press(until="Saved")
    assert len(saved_decisions(tmp_path)) == 2
    page.wait_for_timeout(400)  # a new item takes no click at once
    page.dblclick(".choice >> nth=0")
    visitor.press(until="Saved")
    for chord in ("Control+1", "Meta+1", "Alt+1"):
        page.keyboard.press(chord)
    assert len(saved_decisions(tmp_path)) == 3
    visitor.context.close()


def test_two_tabs(browser: Any, start: Start, tmp_path: Path) -> None:
    url = start(*write_case(tmp_path)).url
    first, second, third = (Visitor(browser, url) for _ in range(3))
    item = first.item
    assert second.item == third.item == item
    third.press("m")
    third.page.keyboard.type("a thought")
    first.press("1", until="Saved")
    second.page.wait_for_selector("#alert button")
    assert second.text("#alert p").startswith("This item was decided in another tab: ‘maybe’.")
    assert second.item == item != first.item
    second.page.get_by_text("Next item", exact=True).click()
    second.page.wait_for_selector(READY)
    assert second.item == first.item
    third.page.wait_for_selector("#alert button")
    assert third.item == item
    assert third.page.locator("#note").input_value() == "a thought"
    assert third.text("#decision") == "Decided: ‘maybe’"
    third.press("Escape", "3")
    assert third.text("#status") == f"Saved: ‘yes’ for {item}, in place of the earlier decision"
    decision = saved_decisions(tmp_path)[item]
    assert (decision["label"], decision["note"]) == ("yes", "a thought")
    for visitor in (first, second, third):
        assert visitor.messages == []
        visitor.context.close()


def test_a_killed_server_loses_no_confirmed_decision(browser: Any, start: Start, tmp_path: Path) -> None:
    words, confirmed = write_case(tmp_path), dict[str, str]()
    for _ in range(3):
        process = start(*words)
        visitor = Visitor(browser, process.url)
        for key in "123":
            item = visitor.item
            assert item not in confirmed
            visitor.press(key, until="Saved")
            confirmed[item] = sorted(SCALES["nominal"])[int(key) - 1]
        process.stop()
        visitor.page.keyboard.press("1")
        visitor.page.wait_for_selector("#alert button")
        assert "run dissensus open again" in visitor.text("#alert")
        visitor.context.close()
        assert {item: row["label"] for item, row in saved_decisions(tmp_path).items()} == confirmed


def test_new_numbers_change_the_item_in_place(browser: Any, start: Start, tmp_path: Path) -> None:
    """An update after decisions changes the item on screen, and neither note nor focus."""
    process = start(*write_case(tmp_path))
    wait_for_fit(process)
    visitor = Visitor(browser, process.url)
    item, before = visitor.item, visitor.text("#answers")
    visitor.press("m")
    visitor.page.keyboard.type("half a")
    for n in range(12):
        if item != f"c{n}":
            decision = {"item": f"c{n}", "label": "maybe", "unsure": False, "note": ""}
            assert process.request("decide", decision)[0] == 200
    visitor.page.wait_for_function("old => document.getElementById('answers').innerText !== old", arg=before)
    visitor.page.keyboard.type(" note")
    assert (visitor.item, visitor.page.locator("#note").input_value()) == (item, "half a note")
    visitor.page.reload()  # the note is kept over a reload
    visitor.page.wait_for_selector(READY)
    while visitor.item != item:
        visitor.press("n")
    assert visitor.page.locator("#note").input_value() == "half a note"
    visitor.context.close()


def test_the_end_and_skipped_items(browser: Any, start: Start, tmp_path: Path) -> None:
    visitor = Visitor(browser, start(*write_case(tmp_path, n_items=4)).url)
    assert visitor.press("z") == ""
    seen = [visitor.item]
    for _ in range(7):
        visitor.press("n")
        seen.append(visitor.item)
    assert set(seen) == {"c0", "c1", "c2", "c3"}
    assert all(one != other for one, other in itertools.pairwise(seen))
    visitor.press("1", "2", "u", "3", until="Saved")
    assert visitor.text("#item-title") == "Nothing is left to decide"
    path = tmp_path / "votes-decisions" / "decisions.jsonl"
    assert visitor.text("#finished-words") == (
        f"You decided 3 items and marked 1 as unsure. The decisions are in {path}."
    )
    assert len(saved_decisions(tmp_path)) == 4
    visitor.press("z", until="Undone")
    assert visitor.page.locator("#finished").is_hidden()
    visitor.press("3", until="Saved")
    visitor.page.click("#finished a")
    visitor.page.wait_for_selector("#view-export:not([hidden])")
    assert visitor.messages == []
    visitor.context.close()


# ---- kinds of labels ----------------------------------------------------------------------------------


def test_ordered_classes_keep_their_order(browser: Any, start: Start, tmp_path: Path) -> None:
    visitor = Visitor(browser, start(*write_case(tmp_path, "ordinal")).url)
    assert visitor.page.locator(".choice bdi").all_inner_texts() == ["bad", "fair", "good"]
    item = visitor.item
    visitor.press("2", until="Saved")
    assert saved_decisions(tmp_path)[item]["label"] == "fair"
    visitor.context.close()


def test_sets_are_ticked_and_confirmed(browser: Any, start: Start, tmp_path: Path) -> None:
    visitor = Visitor(browser, start(*write_case(tmp_path, "multi")).url)
    items = [visitor.item]
    visitor.press("3", "1", "2", "2", "Enter", until="Saved")
    items.append(visitor.item)
    # an empty set needs a second confirmation, or its own tick
    visitor.press("Enter", until="Nothing was ticked")
    assert visitor.item == items[1]
    assert visitor.press("Enter", until="Saved") == f"Saved: none for {items[1]}"
    items.append(visitor.item)
    visitor.press("1", "0")
    assert visitor.page.locator("#answers :checked").count() == 1
    visitor.press("Enter", until="Saved")
    items.append(visitor.item)
    visitor.page.click(".choice >> nth=1")
    visitor.press("3", "Enter", until="Saved")  # with a box in focus
    items.append(visitor.item)
    visitor.press("u", until="Saved")
    saved = saved_decisions(tmp_path)
    labels = [saved[item]["label"] for item in items]
    assert labels == [["insult", "toxic"], [], [], ["threat", "toxic"], None]
    visitor.context.close()


def test_comparisons_show_both_sides(browser: Any, start: Start, tmp_path: Path) -> None:
    visitor = Visitor(browser, start(*write_case(tmp_path, "pairwise")).url)
    left, right = visitor.page.locator(".sides .card").all()
    assert (left.inner_text(), right.inner_text()) == ("Left\n\nnorth", "Right\n\nsouth")
    assert left.bounding_box()["y"] == right.bounding_box()["y"]
    item = visitor.item
    visitor.press("3", until="Saved")
    assert saved_decisions(tmp_path)[item]["label"] == "right"
    visitor.context.close()


def test_many_classes_are_filtered(browser: Any, start: Start, tmp_path: Path) -> None:
    visitor = Visitor(browser, start(*write_case(tmp_path, "many")).url)
    items = [visitor.item]
    assert visitor.page.locator(".choice kbd").all_inner_texts() == list("123456789")
    visitor.press("/")
    visitor.page.keyboard.type("Y 1")
    rows = visitor.page.locator(".answer:visible bdi:first-of-type")
    assert [text for text in rows.all_inner_texts() if "category" in text] == ["category 10", "category 11"]
    visitor.press("Enter", until="Saved")
    items.append(visitor.item)
    assert visitor.page.locator("#filter").input_value() == ""
    visitor.press("/")
    visitor.page.keyboard.type("no such class")
    visitor.press("Enter", "Escape", "9", until=f"Saved: ‘category 08’ for {items[1]}")
    saved = saved_decisions(tmp_path)
    assert [saved[item]["label"] for item in items] == ["category 10", "category 08"]
    visitor.context.close()


# ---- what is shown ------------------------------------------------------------------------------------


def fulfill(content: dict[str, Any], route: Any) -> None:
    route.fulfill(json=content)


def answer_next(visitor: Visitor, content: dict[str, Any]) -> None:
    visitor.page.route("**/next", partial(fulfill, content))


def show_item(visitor: Visitor, process: OpenProcess, item: str) -> None:
    """Show an item in place of the next one."""
    content = process.request(f"item?id={item}")[1]
    answer_next(visitor, content)
    visitor.press("n")
    visitor.page.unroute("**/next")
    assert visitor.item == item


def test_who_said_what_with_intervals_and_blind(browser: Any, finished: OpenProcess) -> None:
    visitor = Visitor(browser, finished.url)
    item = finished.request(f"item?id={visitor.item}")[1]
    rows = visitor.page.locator("#answers .answer").all_inner_texts()
    for row, answer in zip(rows, item["answers"], strict=True):
        assert re.search(rf"{answer['label']}\s+{100 * answer['share']:.0f} % ", row)
        assert f"{100 * answer['low']:.0f}–{100 * answer['high']:.0f} %" in row
        for person in answer["who"]:
            assert f"{person['name']} ({100 * person['skill']:.0f} %)" in row.replace("\n", "")
    top = max(item["answers"], key=lambda answer: answer["right"])
    likely = f"‘{top['label']}’ ({100 * top['right']:.0f} %)"
    likely = likely if top["right"] >= 0.5 else "no class reaches 50 %"
    assert visitor.text("#likely") == f"Most likely right, with annotators weighted by skill: {likely}"
    assert visitor.text("#why") == item["why"]
    visitor.press("b")
    for _ in range(2):  # also after a reload
        shown = visitor.text("#panel")
        assert "%" not in shown
        assert "Ana" not in shown
        assert item["why"] not in shown
        visitor.page.reload()
        visitor.page.wait_for_selector(READY)
    visitor.press("b")
    assert "Ana" in visitor.text("#panel")
    assert visitor.messages == []
    visitor.context.close()


def test_texts_are_formatted(browser: Any, finished: OpenProcess) -> None:
    visitor = Visitor(browser, finished.url)
    show_item(visitor, finished, "c20")
    subject = visitor.page.locator("#subject")
    assert subject.locator("dt").all_inner_texts() == ["User", "Assistant", "User", "Assistant"]
    assert subject.locator("strong").inner_text() == "two"
    assert subject.locator("code").inner_text() == "one"
    assert subject.locator("a").get_attribute("href") == "https://example.org/a?b=1"
    subject.get_by_role("button", name="Plain text").click()
    assert "**two**" in subject.inner_text()
    subject.locator("summary").click()
    assert subject.locator(".fields").inner_text().split() == ["source", "forum"]
    visitor.context.close()


def test_images_are_shown(browser: Any, start: Start, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(base64.b64decode(DOT))
    words = write_case(tmp_path)
    rows = (tmp_path / "items.csv").read_text().splitlines()
    lines = [f"{row},{'picture' if n == 0 else 'dot.png'}" for n, row in enumerate(rows)]
    (tmp_path / "items.csv").write_text("\n".join(lines) + "\n")
    visitor = Visitor(browser, start(*words).url)
    image = visitor.page.locator("#subject img")
    assert image.get_attribute("alt") == "Image 1 of 1"
    visitor.page.wait_for_function("() => document.querySelector('#subject img').naturalWidth === 1")
    visitor.page.route("**/image*", lambda route: route.fulfill(status=404, body=""))
    visitor.press("n")
    visitor.page.get_by_text("Image 1 of 1 could not be loaded.").wait_for()
    visitor.context.close()


MARKDOWN = [
    ("# Title\ntext", "<p class='heading'>Title</p><p>text</p>"),
    ("#tag and 2 * 3 * 4", "<p>#tag and 2 * 3 * 4</p>"),
    ("a snake_case_name, 2*3*4", "<p>a snake_case_name, 2*3*4</p>"),
    ("**a *b* c** and _e_", "<p><strong>a <em>b</em> c</strong> and <em>e</em></p>"),
    ("__d__ *e*f", "<p><strong>d</strong> *e*f</p>"),
    ("`**a**` ``", "<p><code>**a**</code> ``</p>"),
    ("```py\n<b>\n\n# x\n```\nafter", "<pre tabindex='0'><code><b>\n\n# x</code></pre><p>after</p>"),
    ("~~~\nopen", "<pre tabindex='0'><code>open</code></pre>"),
    ("> a\n> b\n\nc", "<blockquote><p>a\nb</p></blockquote><p>c</p>"),
    ("- a\n  more\n- b", "<ul><li><p>a\nmore</p></li><li><p>b</p></li></ul>"),
    ("- b\n  1. c", "<ul><li><p>b</p><ol start='1'><li><p>c</p></li></ol></li></ul>"),
    ("7) a\n8) b", "<ol start='7'><li><p>a</p></li><li><p>b</p></li></ol>"),
    ("a\nb\n\nc", "<p>a\nb</p><p>c</p>"),
    (
        "head\n| a | **b** |\n|---|:-:|\n| x \\| y |\n| 1 | 2 | 3 |\n\nafter",
        "<p>head</p><div class='scroll' tabindex='0'><table><thead><tr><th>a</th><th><strong>b</strong></th>"
        "</tr></thead><tbody><tr><td>x | y</td></tr><tr><td>1</td><td>2 | 3</td></tr></tbody></table>"
        "</div><p>after</p>",
    ),
    (
        "a | b\n-- | -\n",
        "<div class='scroll' tabindex='0'><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody></tbody>"
        "</table></div>",
    ),
    ("a | b\n---", "<p>a | b\n---</p>"),
    (
        "a | b\n- | -\n1 | 2\n# c | d",
        "<div class='scroll' tabindex='0'><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr>"
        "<td>1</td><td>2</td></tr></tbody></table></div><p class='heading'>c | d</p>",
    ),
    ("[a](http://x.example) [b](ftp://x) [c](//x)", "<p><a>a</a> [b](ftp://x) [c](//x)</p>"),
    ("see https://x.example/a.", "<p>see <a>https://x.example/a</a>.</p>"),
    ("[![i](http://a.example)](http://b.example)", None),
    ("&lt; &amp; <!-- x -->", "<p>&lt; &amp; <!-- x --></p>"),
    ("", ""),
]
AS_TEXT = """node => {
  const omitted = ["href", "rel", "target", "title", "dir"];
  const shown = (node) => {
    if (node.nodeType === 3) return node.data;
    const names = node.getAttributeNames().filter((name) => !omitted.includes(name));
    const start = [node.localName, ...names.map((name) => `${name}='${node.getAttribute(name)}'`)].join(" ");
    return `<${start}>${[...node.childNodes].map(shown).join("")}</${node.localName}>`;
  };
  return [...node.childNodes].map(shown).join("");
}"""


def test_markdown_and_hostile_texts(browser: Any, finished: OpenProcess) -> None:
    """Markup becomes the elements expected by hand, and only these; nothing else runs or is requested."""
    visitor = Visitor(browser, finished.url)
    page, content = visitor.page, finished.request(f"item?id={visitor.item}")[1]
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    texts = [*MARKDOWN, *((text, None) for text in HOSTILE.values())]
    for text, expected in texts:
        content |= {"text": text, "why": text, "columns": {text: text}}
        for n, answer in enumerate(content["answers"]):
            answer["label"] = f"{n}{text[:200]}"
        answer_next(visitor, content)
        visitor.press("n")
        if text:
            page.click("#subject summary")
        if expected is not None:
            assert (page.locator("#subject .markdown").evaluate(AS_TEXT) if text else "") == expected
        for link in page.locator("#item a").all():
            assert re.match("https?://", link.get_attribute("href"))
            assert link.get_attribute("rel") == "noopener noreferrer"
            assert link.get_attribute("target") == "_blank"
        assert page.locator("#item :is(script, img, svg, iframe, object, style, form)").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert page.evaluate("window.hacked") is None
    assert {url.removeprefix(finished.url) for url in requests} <= {"next", "state"}
    assert visitor.messages == []
    visitor.context.close()


def test_hostile_names_everywhere(browser: Any, start: Start, tmp_path: Path) -> None:
    script, image = "<script>window.hacked = 1</script>", "<img src=x onerror=window.hacked=1>"
    rows = [f'{script} {m},{image} {n},"\'>{image} {(m * n) % 2}"\n' for m in range(12) for n in range(5)]
    (tmp_path / f"{image[:4]}.csv").write_text("item,annotator,label\n" + "".join(rows))
    process = start(f"{image[:4]}.csv")
    wait_for_fit(process)
    visitor = Visitor(browser, process.url)
    visitor.press("1", "m", until="Saved")
    visitor.page.keyboard.type(script)
    visitor.press("Escape", "2", "z", until="Undone")
    for view in ("report", "export"):
        visitor.page.click(f"nav a[href='#{view}']")
        visitor.page.wait_for_timeout(1000)
    for frame in visitor.page.frames:
        assert frame.evaluate("window.hacked") is None
    assert visitor.messages == []
    visitor.context.close()


# ---- report, export, files ----------------------------------------------------------------------------


def test_report_and_export(browser: Any, start: Start, tmp_path: Path) -> None:
    process = start(*write_case(tmp_path))
    wait_for_fit(process)
    visitor = Visitor(browser, process.url)
    page = visitor.page
    visitor.press("1", "2", until="Saved")
    page.click("nav a[href='#report']")
    page.wait_for_selector("nav [aria-current=page]:has-text('Report')")
    frame = page.frame_locator("#frame")
    frame.locator("html[data-ready]").wait_for()
    assert frame.locator("#brand, .brand").inner_text().lower() == "dissensus report"
    page.click("nav a[href='#export']")
    for link in page.locator("#files a").all():
        with page.expect_download() as waiting:
            link.click()
        assert Path(waiting.value.path()).stat().st_size > 0
        assert waiting.value.suggested_filename == link.inner_text()
    page.locator("#texts pre").first.wait_for()
    assert "240 labels from 8 annotators" in page.locator("#texts pre").nth(0).inner_text()
    assert "tabular" in page.locator("#texts pre").nth(1).inner_text()
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#texts button").first.click()
    page.wait_for_selector("#texts button:has-text('Copied')")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text == process.request("export/methods.txt")[1]
    before = process.state()["report"]
    page.click("#refit")
    page.wait_for_selector("#background:not([hidden])")
    page.click("nav a[href='#report']")
    newer = "before => Number(document.getElementById('frame').dataset.report) > before"
    page.wait_for_function(newer, arg=before, timeout=60_000)
    page.reload()
    page.locator("#view-report").wait_for()  # the view is in the address
    assert visitor.messages == []
    visitor.context.close()


def test_files_are_dropped_on_the_page(browser: Any, start: Start, tmp_path: Path) -> None:
    write_case(tmp_path)
    (tmp_path / "empty.csv").write_text("")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    visitor = Visitor(browser, start("-o", str(folder)).url, "#view-waiting:not([hidden])")
    page = visitor.page
    page.set_input_files("#file", tmp_path / "empty.csv")
    page.wait_for_selector("#alert p")
    assert "empty" in visitor.text("#alert")
    assert page.locator("#view-waiting").is_visible()
    content = (tmp_path / "votes.csv").read_text()
    page.evaluate(
        """text => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([text], "votes.csv"));
          const settings = { dataTransfer, bubbles: true, cancelable: true };
          for (const type of ["dragover", "drop"]) {
            document.getElementById("zone").dispatchEvent(new DragEvent(type, settings));
          }
        }""",
        content,
    )
    page.wait_for_selector(READY, timeout=60_000)
    assert visitor.text("#alert") == ""
    assert visitor.text("h1") == "votes.csv"
    visitor.press("1", until="Saved")
    assert (folder / "decisions.jsonl").exists()
    visitor.context.close()


# ---- others are refused -------------------------------------------------------------------------------


def test_others_are_refused(finished: OpenProcess) -> None:
    url, token = finished.url, finished.url.split("/")[3]
    port = url.split("/")[2].split(":")[1]
    gets = "", "state", "item?id=c1", "report", "export/gold.csv", "image?id=1&n=0"
    paths: dict[str, Any] = dict.fromkeys(gets) | {path: {} for path in ("next", "undo", "refit")}
    paths |= {"decide": {"item": "c1", "label": "yes", "unsure": False, "note": ""}, "drop?name=a.csv": b"x"}
    for path, body in paths.items():
        for headers in (
            {"Host": f"evil.example:{port}"},
            {"Host": "127.0.0.1"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": f"https://127.0.0.1:{port}"},
            {"Origin": "http://127.0.0.1:1"},
        ):
            assert finished.request(path, body, **headers)[0] == 403, (path, headers)
        for other in ("", "x" * len(token) + "/", token[:-1] + "/", "../", "%00/"):
            address = url.replace(token + "/", other)
            status = finished.request(path, body, address=address)[0]
            assert status in (403, 404), (path, other)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert finished.request("decide", paths["decide"], **{"Content-Type": kind})[0] == 415
    state = finished.state()
    assert (state["decided"], state["latest"], state["stage"]) == (0, None, "ready")


def test_pages_of_other_origins_reach_nothing(browser: Any, finished: OpenProcess) -> None:
    """A web page that knows even the address can neither read, post nor frame it."""
    context = browser.new_context()
    page = context.new_page()
    decision = json.dumps({"item": "c1", "label": "yes", "unsure": False, "note": ""})
    evil = {"content_type": "text/html", "body": "<h1>evil</h1>"}
    page.route("http://evil.example/**", lambda route: route.fulfill(**evil))
    page.goto("http://evil.example/")
    attack = """async ([url, body]) => {
      const kinds = ["text/plain", "application/json"];
      const tries = [fetch(url + "state"), ...kinds.flatMap((kind) => ["cors", "no-cors"].map((mode) =>
        fetch(url + "decide", { method: "POST", mode, body, headers: { "Content-Type": kind } })))];
      const answers = await Promise.allSettled(tries);
      const frame = document.createElement("iframe");
      frame.src = url;
      const loaded = new Promise((resolve) => { frame.onload = resolve; });
      document.body.append(frame);
      await loaded;
      return answers.map((answer) => answer.status === "rejected" || answer.value.type === "opaque");
    }"""
    assert all(page.evaluate(attack, [finished.url, decision]))
    assert page.frames[-1].locator("#title").count() == 0
    assert finished.state()["decided"] == 0
    context.close()


def test_the_page_works_in_the_frame_of_a_notebook(browser: Any, start: Start, tmp_path: Path) -> None:
    process = start(*write_case(tmp_path))

    class Notebook(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            cell = f'<iframe src="{process.url}" width=900 height=700></iframe>'
            self.wfile.write(f"<h1>Notebook</h1>{cell}".encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Notebook)
    Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://localhost:{server.server_port}/")
    frame = page.frames[1]
    frame.wait_for_selector(READY, timeout=60_000)
    assert page.evaluate("document.activeElement.localName") == "body"  # the cell does not take the focus
    item = frame.locator("#item-title .id").inner_text()
    frame.locator(".choice").nth(0).click()
    frame.wait_for_selector("#status:not(:empty)")
    frame.wait_for_selector(READY)
    page.keyboard.press("2")
    frame.wait_for_function("() => document.getElementById('decided').value === 2")
    assert saved_decisions(tmp_path)[item]["label"] == "maybe"
    assert len(saved_decisions(tmp_path)) == 2
    context.close()
    server.shutdown()
    server.server_close()


# ---- every screen -------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_of_every_view(browser: Any, finished: OpenProcess, scheme: str, width: int) -> None:
    settings: dict[str, Any] = {"color_scheme": scheme, "bypass_csp": True}
    visitor = Visitor(browser, finished.url, width=width, **settings)
    page = visitor.page
    for item in ("c20", "c3"):
        show_item(visitor, finished, item)
        page.click("#subject summary")
        assert visitor.violations() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.route("**/decide", lambda route: route.abort())
    visitor.press("1")
    page.wait_for_selector("#alert p")
    assert visitor.violations() == []
    visitor.press("?")
    assert page.locator("#keys").is_visible()
    assert visitor.violations() == []
    page.keyboard.press("Escape")
    answer_next(visitor, {"item": None})
    visitor.press("n")
    assert visitor.violations() == []
    for view in ("report", "export"):
        page.click(f"nav a[href='#{view}']")
        page.wait_for_timeout(1000)
        assert visitor.violations() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    state = finished.state()
    for stage in ("waiting", "fitting"):
        content = {"stage": stage, "message": "reading", "share": 0.4, "error": "votes.csv: is empty"}
        content |= {"title": "", "version": 0, "report": 0, "fast": False}
        page.route("**/state", partial(fulfill, content))
        page.reload()
        page.wait_for_selector(f"#view-{stage}:not([hidden])")
        assert visitor.violations() == []
    assert state == finished.state()
    visitor.context.close()
