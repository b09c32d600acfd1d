"""The report as a person meets it: in a real browser, by mouse, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dissensus as ds
from dissensus.workflow.refine import fit
from report_sample import CLASSES, canteen

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# The median of three of everything that filters or sorts the items, in milliseconds.
SLOWEST = """() => {
  const times = {};
  const timed = (name, action) => {
    const all = [0, 1, 2].map(() => {
      const start = performance.now();
      action();
      document.body.offsetHeight;
      return performance.now() - start;
    });
    times[name] = all.sort((a, b) => a - b)[1];
  };
  const heads = document.querySelectorAll("#items-table thead button");
  for (const head of heads) timed(`sort ${head.textContent}`, () => head.click());
  const chips = document.querySelectorAll("#items .chips button");
  for (const chip of chips) timed(`show ${chip.textContent}`, () => chip.click());
  const set = (id, value, event) => {
    const field = document.getElementById(id);
    field.value = value;
    field.dispatchEvent(new Event(event));
  };
  timed("class", () => set("items-table-filter-0", "1", "change"));
  timed("cluster", () => set("items-table-filter-1", "0", "change"));
  const who = JSON.parse(document.getElementById("data").textContent).annotators.id[7];
  timed("annotator", () => set("items-table-filter-2", who, "input"));
  for (const query of ["1", "12", "123"]) {
    timed(`search ${query}`, () => set("items-table-search", query, "input"));
  }
  return times;
}"""
NASTY = "<script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.no_cover,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is absent: make browser installs it"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it: texts (one of them hostile), side columns, a search."""
    annotations = canteen()
    texts = list(annotations.item_column("text"))
    texts[0] = NASTY
    cells = [
        {
            "n_item_clusters": k,
            "n_annotator_clusters": g,
            "score": -0.8,
            "behind": 0.01 * abs(k - 6) + 0.02 * abs(g - 3),
        }
        for k, g in ((6, 3), (4, 2), (4, 3), (6, 2), (8, 2), (8, 3))
    ]
    run = fit(annotations, "pgm", {"n_item_clusters": 6, "n_annotator_clusters": 3}, seed=1)
    path = tmp_path_factory.mktemp("report") / "report.html"
    ds.write_report(
        annotations,
        run.model,
        path,
        title=f"Canteen {NASTY}",
        texts=texts,
        held_out=run.held_out,
        selection=cells,
        command="dissensus fit remarks.csv --model pgm",
        run="refined",
        seed=1,
    )
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


class Visit:
    """A page opened from its file, with all that it said and asked for."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, **settings: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=20_000)

    def column(self, table: str, number: int) -> list[str]:
        cells: list[str] = self.page.locator(f"#{table} tbody tr > :nth-child({number})").all_inner_texts()
        return cells


@pytest.fixture
def visit(browser: Any, report: Path) -> Iterator[Visit]:
    """The page on a wide screen; afterwards, nothing was complained of and nothing fetched."""
    opened = Visit(browser, report)
    yield opened
    said, asked = opened.said, [url for url in opened.asked if not url.startswith("data:")]
    opened.context.close()
    assert said == []
    assert asked == [report.as_uri()]


# ---- what is there ------------------------------------------------------------------------------------


def test_the_strip_and_the_steps_stand_at_the_top_and_every_section_is_there(visit: Visit) -> None:
    cards = visit.page.locator("#strip li")
    assert cards.count() == 5
    assert cards.nth(4).bounding_box()["y"] < 900
    assert visit.page.locator("#steps li").last.bounding_box()["y"] < 900
    titles = visit.page.locator("main > section > h2").all_inner_texts()
    assert titles == ["Items", "Annotators", "Groups", "Labels", "Map", "Model"]
    visit.page.click("#comparison summary")
    rows = visit.page.locator("#held-out tbody tr")
    rows.first.wait_for()  # the table is drawn once its section is open
    assert rows.count() == 4
    assert "best" in rows.first.inner_text()
    assert "±" in rows.last.inner_text()
    visit.page.click("#search summary")
    assert visit.page.locator("#surface td.best").inner_text() == "-0.800"
    assert visit.page.locator("#command").inner_text() == "dissensus fit remarks.csv --model pgm"


def test_every_number_of_the_strip_opens_the_table_that_it_counts(visit: Visit) -> None:
    links = visit.page.locator("#strip a")
    for place in range(links.count()):
        link = links.nth(place)
        table, preset = link.get_attribute("href")[1:], link.get_attribute("data-preset")
        said = link.inner_text().split("\n")[0].strip()
        link.click()
        pressed = visit.page.locator(f"#{table} button[aria-pressed=true]")
        shown = int(
            visit.page.locator(f"#{table}-table-status").inner_text().split(" of ")[-1].replace(",", "")
        )
        assert pressed.count() == 1, preset
        if said.endswith("%"):
            assert abs(100 * shown / 240 - float(said[:-1])) <= 0.5
        elif said.isdigit():
            assert shown == int(said)


def test_text_from_the_data_is_shown_and_never_run(visit: Visit) -> None:
    assert visit.page.locator("h1").inner_text() == f"Canteen {NASTY}"
    visit.page.fill("#items-table-search", "onerror")
    assert visit.page.locator("#items-table tbody .clamp").inner_text() == NASTY
    visit.page.click("#items-table tbody button")
    assert visit.page.locator("#items-table .full").inner_text() == NASTY
    assert visit.page.evaluate("window.hacked") is None
    assert visit.page.locator("main img, main script").count() == 0


def test_even_injected_markup_could_not_run(visit: Visit) -> None:
    visit.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=data:, onerror=\"window.hacked = true\">')"
    )
    visit.page.wait_for_timeout(100)
    assert visit.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in line for line in visit.said)
    visit.said.clear()


# ---- the tables ---------------------------------------------------------------------------------------


def test_items_sort_both_ways(visit: Visit) -> None:
    head = visit.page.locator("#items-table thead th", has_text="Agreed")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = [float(text[:-2]) for text in visit.column("items-table", 5)]
    assert falling == sorted(falling, reverse=True)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    rising = [float(text[:-2]) for text in visit.column("items-table", 5)]
    assert rising == sorted(rising)
    assert rising[0] < falling[0]


def test_items_are_found_by_their_text(visit: Visit) -> None:
    visit.page.fill("#items-table-search", "UMBRELLA")
    texts = visit.column("items-table", 1)
    assert texts
    assert all("umbrella" in text for text in texts)
    visit.page.fill("#items-table-search", "no such words")
    assert visit.page.locator("#items-table-status").inner_text() == "Nothing matches."
    visit.page.fill("#items-table-search", "")
    assert visit.page.locator("#items-table-status").inner_text() == "1–20 of 240"


def test_pages_turn(visit: Visit) -> None:
    visit.page.click("#items [aria-label='Last page']")
    assert visit.page.locator("#items-table-status").inner_text() == "221–240 of 240"
    assert visit.page.locator("#items [aria-label='Next page']").is_disabled()
    visit.page.click("#items [aria-label='Previous page']")
    assert visit.page.locator("#items-table-status").inner_text() == "201–220 of 240"


def test_overturned_labels_say_why_and_rows_open_anywhere(visit: Visit) -> None:
    chip = visit.page.locator("#items button", has_text="Not the most frequent label")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    visit.page.locator("#items-table tbody tr.row").first.locator("td").nth(3).click()
    detail = visit.page.locator("#items-table tr.detail")
    assert "Why not the most frequent label" in detail.inner_text()
    assert "Who said it" in detail.locator("thead").inner_text()
    assert "guest" in detail.locator("td.who").first.inner_text()
    visit.page.locator("#items-table tbody tr.row").first.locator("td").nth(3).click()
    assert visit.page.locator("#items-table tr.detail").count() == 0


def test_filters_add_up_and_the_file_holds_what_is_shown(visit: Visit) -> None:
    visit.page.select_option("#items-table-filter-0", label="complaint")
    visit.page.fill("#items-table-filter-2", "guest 07")
    status = visit.page.locator("#items-table-status").inner_text()
    with visit.page.expect_download() as waiting:
        visit.page.click("#items .take")
    text = Path(waiting.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert f" of {len(rows)}" in status
    assert 0 < len(rows) < 240
    assert {row["label"] for row in rows} == {"complaint"}
    assert abs(sum(float(rows[0][f"p_{name}"]) for name in CLASSES) - 1) < 0.005
    visit.page.fill("#items-table-filter-2", "nobody of that name")
    assert visit.page.locator("#items-table-status").inner_text() != status


def test_every_table_can_be_taken_away(visit: Visit) -> None:
    for summary in visit.page.locator("main > section > details > summary").all():
        summary.click()
    files = {}
    for button in visit.page.locator(".take").all():
        with visit.page.expect_download() as waiting:
            button.click()
        text = Path(waiting.value.path()).read_text(encoding="utf-8")
        files[waiting.value.suggested_filename] = list(csv.reader(io.StringIO(text)))
    names = {"items", "annotators", "pairs", "by-reads_on", "classes", "held-out", "search"}
    assert set(files) == {f"{name}.csv" for name in names}
    assert [row[0] for row in files["classes.csv"][1:]] == list(CLASSES)
    assert sum(int(row[1]) for row in files["classes.csv"][1:]) == 240 * 7
    assert len(files["annotators.csv"]) == 41


def test_texts_that_a_spreadsheet_would_compute_are_made_harmless(browser: Any, tmp_path: Path) -> None:
    rows = [(item, who, "yes") for item in ("=1+1", "plain") for who in ("a", "b")]
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), classes=["no", "yes"])
    path = tmp_path / "page.html"
    ds.write_report(labels, ds.MajorityVote().fit(labels), path)
    opened = Visit(browser, path)
    with opened.page.expect_download() as waiting:
        opened.page.click("#items .take")
    assert "'=1+1," in Path(waiting.value.path()).read_text(encoding="utf-8")
    opened.context.close()


def test_a_command_is_offered_for_what_is_shown(visit: Visit) -> None:
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.locator("#items button", has_text="To adjudicate").click()
    visit.page.click("#items .copy")
    visit.page.wait_for_selector("#items .copy:has-text('Copied')")
    assert visit.page.evaluate("navigator.clipboard.readText()") == "dissensus plan refined -o to-label.csv"


def test_rows_open_by_keyboard_and_keep_the_focus(visit: Visit) -> None:
    visit.page.locator("#items-table tbody button").nth(2).focus()
    visit.page.keyboard.press("Enter")
    focused = visit.page.locator(":focus")
    assert focused.get_attribute("aria-expanded") == "true"
    visit.page.keyboard.press("Space")
    assert visit.page.locator(":focus").get_attribute("aria-expanded") == "false"


def test_annotators_have_evidence_and_labels_of_their_own(visit: Visit) -> None:
    assert visit.column("annotators-table", 2)[:3] == ["check"] * 3
    visit.page.fill("#annotators-table-search", "guest 07")
    visit.page.click("#annotators-table tbody button")
    bars = visit.page.locator("#annotators-table .detail .bar")
    assert [bars.nth(i).get_attribute("aria-label").split(":")[0] for i in range(2)] == [
        "Own labels",
        "What the population would say of the same items",
    ]


def test_side_columns_and_pairs_of_annotators(visit: Visit) -> None:
    table = visit.page.locator("#annotators [aria-label='reads_on'] table")
    assert table.locator("tbody th").all_inner_texts() == ["screen", "phone"]
    visit.page.click("#matrix summary")
    visit.page.locator("#agreement-matrix rect").first.wait_for()
    assert visit.page.locator("#agreement-matrix rect").count() > 300
    assert "% of" in visit.page.locator("#agreement-matrix rect title").first.text_content()


# ---- groups and map -----------------------------------------------------------------------------------


def test_groups_say_what_the_labels_bear_out(visit: Visit) -> None:
    cards = visit.page.locator("#group-cards .card")
    assert cards.count() == 2
    assert "Its members agree with one another on" in cards.first.inner_text()


def test_a_quoted_item_leads_to_its_row(visit: Visit) -> None:
    quote = visit.page.locator("#groups blockquote a").first
    text = quote.inner_text()
    quote.click()
    assert visit.page.locator("#items-table tr.open").locator(".clamp").inner_text() == text
    assert visit.page.locator(":focus").get_attribute("aria-expanded") == "true"


def test_pointing_at_the_map_shows_an_item(visit: Visit) -> None:
    canvas, bubble = visit.page.locator("#map-canvas"), visit.page.locator("#map-bubble")
    canvas.scroll_into_view_if_needed()
    assert bubble.is_hidden()
    box = canvas.bounding_box()
    found = False
    for x, y in np.random.default_rng(0).random((200, 2)):
        visit.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        if bubble.is_visible():
            found = True
            break
    assert found
    assert "labels · remark" in bubble.inner_text()
    assert "%" in bubble.locator(".bar").get_attribute("aria-label")


def test_the_map_is_walked_by_arrow_keys(visit: Visit) -> None:
    visit.page.locator("#map-canvas").focus()
    said = visit.page.locator("#map [role=status]")
    visit.page.keyboard.press("ArrowRight")
    first = said.inner_text()
    for key in ("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
        visit.page.keyboard.press(key)
    assert first
    assert visit.page.locator("#map-bubble").is_visible()
    visit.page.keyboard.press("Escape")
    assert visit.page.locator("#map-bubble").is_hidden()
    for key in ("cluster", "agreed"):
        visit.page.select_option("#map-colour", key)


# ---- every screen -------------------------------------------------------------------------------------


def test_a_phone_shows_it_without_scrolling_sideways(browser: Any, report: Path) -> None:
    visit = Visit(browser, report, width=400, has_touch=True)
    visit.page.click("#items-table tbody button >> nth=1")
    visit.page.locator("#annotators-table tbody button").first.click()
    wide = visit.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 400
    assert visit.page.locator("#items-table thead th", has_text="Agreed").is_hidden()
    visit.context.close()


def test_no_serious_accessibility_fault(browser: Any, report: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # The page's policy refuses scripts that are not its own, axe's too; the faults are the same without it.
    visit = Visit(browser, report, bypass_csp=True)
    visit.page.click("#items-table tbody button >> nth=0")
    visit.page.click("#annotators-table tbody button >> nth=0")
    for fold in ("matrix", "clusters", "comparison", "trace"):
        visit.page.click(f"#{fold} summary")
    found = axe.run(visit.page).response["violations"]
    visit.page.emulate_media(color_scheme="dark")  # which changes colours alone
    found += axe.run(visit.page, options={"runOnly": ["color-contrast"]}).response["violations"]
    visit.context.close()
    serious = [
        (one["id"], [node["target"] for node in one["nodes"]][:5])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_a_page_without_a_script_is_shown_whole(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    item, annotator = np.repeat(np.arange(30), 5), np.tile(np.arange(5), 30)
    numbers = (item + 3.0 * annotator + rng.normal(size=150)).round(2)
    ratings = ds.Annotations.from_arrays(
        [f"{NASTY} {m}" for m in item], [f"rater {n}" for n in annotator], numbers, label_type="numeric"
    )
    path = tmp_path / "p.html"
    ds.write_report(ratings, ds.NumericRatings().fit(ratings), path, title=NASTY)
    said: list[str] = []
    context = browser.new_context(bypass_csp=True, viewport={"width": 400, "height": 900})
    opened = context.new_page()
    opened.on("console", lambda message: said.append(message.text))
    opened.goto(path.as_uri())
    assert opened.locator("h2").all_inner_texts() == ["Items", "Annotators"]
    assert [opened.locator("tbody").nth(i).locator("tr").count() for i in (0, 1)] == [30, 5]
    assert opened.locator("svg circle").count() == 35
    assert opened.evaluate("window.hacked") is None
    assert opened.evaluate("document.documentElement.scrollWidth") <= 400
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(opened).response["violations"]
    context.close()
    assert said == []
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


def test_dark_and_light_differ_and_heat_maps_follow(browser: Any, report: Path) -> None:
    visit = Visit(browser, report)
    visit.page.click("#annotators-table tbody button >> nth=0")
    cell = visit.page.locator("#annotators-table .heat td").first

    def colours() -> tuple[str, str]:
        paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return paper, cell.evaluate("cell => getComputedStyle(cell).backgroundColor")

    light = colours()
    visit.page.emulate_media(color_scheme="dark")
    dark = colours()
    visit.context.close()
    assert all(one != other for one, other in zip(light, dark, strict=True))


# ---- size ---------------------------------------------------------------------------------------------


def test_twenty_thousand_items_stay_smooth(browser: Any, tmp_path: Path) -> None:
    crowd = ds.simulate(20_000, 400, labels_per_item=10, seed=3).annotations
    table = pa.table(
        {"item": crowd.items, "text": [f"Remark number {m}, in some words." for m in range(20_000)]}
    )
    crowd = crowd.with_tables(items=table)
    model = ds.FMM(6, max_iter=15).fit(crowd)
    path = tmp_path / "large.html"
    ds.write_report(crowd, model, path, held_out=[])
    assert path.stat().st_size < 6e6
    visit = Visit(browser, path)
    opened = visit.page.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
    slowest = visit.page.evaluate(SLOWEST)
    visit.context.close()
    assert visit.said == []
    # Milliseconds, on a machine that may be busy: docs/report.md has what it takes alone.
    assert opened < 3000
    assert max(slowest.values()) < 500


def test_a_crowd_of_one_mind_has_a_whole_page(browser: Any, tmp_path: Path) -> None:
    # Everybody agrees, so no second group is left of the small model that looks for groups.
    item, annotator = (column.ravel() for column in np.indices((40, 6)))
    known = ds.Annotations.from_arrays(item, annotator, item % 3)
    path = tmp_path / "page.html"
    ds.write_report(known, ds.MajorityVote().fit(known), path)
    opened = Visit(browser, path)
    assert opened.said == []
    assert opened.page.locator("main section").count() == 6
    assert "bear out no groups" in opened.page.locator("body").inner_text()
    opened.context.close()


def test_pages_without_names_or_single_labels_are_whole(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = canteen(n_items=60)
    nobody = ds.Annotations.from_counts(known.counts, classes=known.classes)
    monkeypatch.setattr("dissensus.report.annotators.MOST_ROWS", 10)
    for place, labels in enumerate((known, nobody)):
        path = tmp_path / f"{place}.html"
        ds.write_report(labels, ds.FMM(3).fit(labels), path, held_out=[])
        opened = Visit(browser, path)
        opened.page.locator("#items-table tbody tr.row").first.locator("td").first.click()
        assert "Population" in opened.page.locator("#items-table tr.detail thead").inner_text()
        if labels is known:
            opened.page.click("#annotators-table tbody button >> nth=0")
        assert opened.page.locator("#annotators").count() == (labels is known)
        assert opened.said == []
        opened.context.close()
