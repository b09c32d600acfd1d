"""The report in a real browser: mouse, keyboard, phone and dark mode."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dissensus as ds
from benchmarks.report import CHROMIUM, SLOWEST_INTERACTION, chromium
from dissensus.report.page import write_judge_page
from dissensus.workflow.refine import fit
from tests.helpers.judge import seen, table
from tests.helpers.report_sample import CLASSES, canteen

NASTY = "<script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"

pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.no_cover,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is absent: make browser installs it"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all features: texts (one of them hostile), annotator columns, a search."""
    annotations = canteen()
    texts = list(annotations.item_column("text"))
    texts[:2] = NASTY, "=1+1"
    annotations = annotations.with_tables(items={"item": annotations.items, "text": texts})
    cells = [
        {"n_item_clusters": k, "n_annotator_clusters": g, "score": -0.8, "behind": 0.01 * abs(k - 6)}
        for k, g in ((6, 3), (4, 2), (4, 3), (6, 2), (8, 2), (8, 3))
    ]
    sizes = {"n_item_clusters": 6, "n_annotator_clusters": 3}
    run = fit(annotations, "pgm", sizes, seed=1)
    candidates = [("pgm", sizes), ("fmm", {"n_item_clusters": 8}), ("dawid-skene", {}), ("empirical", {})]
    scores = ds.compare(annotations, seed=1, candidates=candidates, progress=False).table
    path = tmp_path_factory.mktemp("report") / "report.html"
    settings = {"held_out": scores, "selection": cells, "run": "refined", "seed": 1}
    command = "dissensus fit remarks.csv --model pgm"
    title = f"Canteen {NASTY}"
    ds.write_report(annotations, run.model, path, title=title, command=command, **settings)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


class Visit:
    """A page opened from its file, with its console messages and requests."""

    def __init__(
        self, browser: Any, path: Path, width: int = 1280, ready: str = "html[data-ready]", **settings: Any
    ) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(ready, timeout=20_000)

    def column(self, table: str, number: int) -> list[str]:
        cells: list[str] = self.page.locator(f"#{table} tbody tr > :nth-child({number})").all_inner_texts()
        return cells

    def status(self, table: str = "items") -> str:
        return str(self.page.locator(f"#{table}-table-status").inner_text())

    def download(self, button: Any) -> tuple[str, str]:
        with self.page.expect_download() as waiting:
            button.click()
        file = waiting.value
        return file.suggested_filename, Path(file.path()).read_text(encoding="utf-8")

    def violations(self, impacts: str = "serious critical", **options: Any) -> list[str]:
        """Violations of accessibility rules; needs bypass_csp, as the page's policy blocks axe."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        rules = axe.run(self.page, options=options or None).response["violations"]
        return [rule["id"] for rule in rules if rule["impact"] in impacts]


@pytest.fixture
def visit(browser: Any, report: Path) -> Iterator[Visit]:
    """The page on a wide screen; fails on console messages and requests."""
    opened = Visit(browser, report)
    yield opened
    messages, requests = opened.messages, [url for url in opened.requests if not url.startswith("data:")]
    opened.context.close()
    assert messages == []
    assert requests == [report.as_uri()]


# ---- what is there ------------------------------------------------------------------------------------


def test_cards_steps_and_all_sections_are_shown(visit: Visit) -> None:
    cards = visit.page.locator("#strip li")
    assert cards.count() == 5
    assert cards.nth(4).bounding_box()["y"] < 900
    assert visit.page.locator("#steps li").last.bounding_box()["y"] < 900
    titles = visit.page.locator("main > section > h2").all_inner_texts()
    assert titles == ["Items", "Annotators", "Groups", "Labels", "Model"]
    visit.page.click("#comparison summary")
    rows = visit.page.locator("#held-out tbody tr")
    rows.first.wait_for()  # drawn when its section is opened
    assert rows.count() == 4
    assert "best" in rows.first.inner_text()
    assert "±" in rows.last.inner_text()
    visit.page.click("#search summary")
    assert visit.page.locator("#surface td.best").inner_text() == "-0.800"
    assert visit.page.locator("#command").inner_text() == "dissensus fit remarks.csv --model pgm"
    # card numbers open the table they count
    for link in visit.page.locator("#strip a").all():
        table, number = link.get_attribute("href")[1:], link.inner_text().split("\n")[0].strip()
        link.click()
        assert visit.page.locator(f"#{table} button[aria-pressed=true]").count() == 1
        shown = int(visit.status(table).split(" of ")[-1].replace(",", ""))
        if number.endswith("%"):
            assert abs(100 * shown / 720 - float(number[:-1])) <= 0.5
        elif number.isdigit():
            assert shown == int(number)


def test_text_and_injected_markup_are_not_executed(visit: Visit) -> None:
    assert visit.page.locator("h1").inner_text() == f"Canteen {NASTY}"
    visit.page.fill("#items-table-search", "onerror")
    assert visit.page.locator("#items-table tbody .clamp").inner_text() == NASTY
    visit.page.click("#items-table tbody button")
    assert visit.page.locator("#items-table .full").inner_text() == NASTY
    assert visit.page.locator("main img, main script").count() == 0
    markup = '<img src=data:, onerror="window.hacked = true">'
    visit.page.evaluate(f"document.body.insertAdjacentHTML('beforeend', '{markup}')")
    visit.page.wait_for_timeout(100)
    assert visit.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in line for line in visit.messages)
    visit.messages.clear()


# ---- the tables ---------------------------------------------------------------------------------------


def test_items_are_sorted_searched_and_paged(visit: Visit) -> None:
    head = visit.page.locator("#items-table thead th", has_text="Agreement")
    orders = {}
    for order in ("descending", "ascending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        orders[order] = [float(text[:-2]) for text in visit.column("items-table", 5)]
        assert orders[order] == sorted(orders[order], reverse=order == "descending")
    assert orders["ascending"][0] < orders["descending"][0]
    visit.page.fill("#items-table-search", "UMBRELLA")
    texts = visit.column("items-table", 1)
    assert texts
    assert all("umbrella" in text for text in texts)
    visit.page.fill("#items-table-search", "no such words")
    assert visit.status() == "No matches."
    visit.page.fill("#items-table-search", "")
    assert visit.status() == "1–20 of 720"
    visit.page.click("#items [aria-label='Last page']")
    assert visit.status() == "701–720 of 720"
    assert visit.page.locator("#items [aria-label='Next page']").is_disabled()
    visit.page.click("#items [aria-label='Previous page']")
    assert visit.status() == "681–700 of 720"


def test_rows_open_by_mouse_and_keyboard(visit: Visit) -> None:
    visit.page.locator("#items-table tbody button").nth(2).focus()
    for key, expanded in (("Enter", "true"), ("Space", "false")):
        visit.page.keyboard.press(key)
        assert visit.page.locator(":focus").get_attribute("aria-expanded") == expanded
    chip = visit.page.locator("#items button", has_text="Label differs from majority")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    cell, detail = visit.page.locator("#items-table tbody tr.row td").nth(3), "#items-table tr.detail"
    cell.click()
    assert "Label differs from majority: " in visit.page.locator(detail).inner_text()
    assert "Annotators" in visit.page.locator(f"{detail} thead").inner_text()
    assert "guest" in visit.page.locator(f"{detail} td.who").first.inner_text()
    cell.click()
    assert visit.page.locator(detail).count() == 0


def test_filtered_rows_and_every_table_can_be_downloaded(visit: Visit) -> None:
    for summary in visit.page.locator("main > section > details > summary").all():
        summary.click()
    texts = dict(visit.download(button) for button in visit.page.locator(".take").all())
    files = {name: list(csv.reader(io.StringIO(text))) for name, text in texts.items()}
    names = {"items", "annotators", "pairs", "by-reads_on", "classes", "held-out", "search"}
    assert set(files) == {f"{name}.csv" for name in names}
    assert [row[0] for row in files["classes.csv"][1:]] == list(CLASSES)
    assert sum(int(row[1]) for row in files["classes.csv"][1:]) == 720 * 7
    assert len(files["annotators.csv"]) == 41
    assert any("'=1+1" in row for row in files["items.csv"])  # a spreadsheet formula
    visit.page.select_option("#items-table-filter-0", label="complaint")
    visit.page.fill("#items-table-filter-2", "guest 07")
    status = visit.status()
    rows = list(csv.DictReader(io.StringIO(visit.download(visit.page.locator("#items .take"))[1])))
    assert f" of {len(rows)}" in status
    assert 0 < len(rows) < 720
    assert {row["label"] for row in rows} == {"complaint"}
    assert abs(sum(float(rows[0][f"p_{name}"]) for name in CLASSES) - 1) < 0.005
    visit.page.fill("#items-table-filter-2", "no such name")
    assert visit.status() != status


def test_the_command_for_the_rows_shown_is_copied(visit: Visit) -> None:
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.locator("#items button", has_text="To adjudicate").click()
    visit.page.click("#items .copy")
    visit.page.wait_for_selector("#items .copy:has-text('Copied')")
    assert visit.page.evaluate("navigator.clipboard.readText()") == "dissensus plan refined -o to-label.csv"


# ---- annotators, groups -------------------------------------------------------------------------------


def test_annotators_and_groups_are_described(visit: Visit) -> None:
    assert visit.column("annotators-table", 2)[:3] == ["↓ differs"] * 3
    visit.page.fill("#annotators-table-search", "guest 07")
    visit.page.click("#annotators-table tbody button")
    bars = visit.page.locator("#annotators-table .detail .bar")
    titles = [bars.nth(i).get_attribute("aria-label").split(":")[0] for i in range(2)]
    assert titles == ["Labels of the annotator", "Answers of the population to the same items"]
    table = visit.page.locator("#annotators [aria-label='reads_on'] table")
    assert table.locator("tbody th").all_inner_texts() == ["screen", "phone"]
    visit.page.click("#matrix summary")
    cells = visit.page.locator("#agreement-matrix rect")
    cells.first.wait_for()
    assert cells.count() > 300
    assert "% of" in cells.first.locator("title").text_content()
    cards = visit.page.locator("#group-cards .card")
    assert cards.count() == 2
    assert cards.nth(1).locator("h3").inner_text().startswith("Smaller group")
    assert "differ on" in visit.page.locator("#contrast").inner_text()
    # a quoted item links to its row
    quote = visit.page.locator("#groups blockquote a").first
    text = quote.inner_text()
    quote.click()
    assert visit.page.locator("#items-table tr.open").locator(".clamp").inner_text() == text
    assert visit.page.locator(":focus").get_attribute("aria-expanded") == "true"


# ---- every screen -------------------------------------------------------------------------------------


def test_phones_need_no_horizontal_scrolling(browser: Any, report: Path) -> None:
    visit = Visit(browser, report, width=400, has_touch=True)
    visit.page.click("#items-table tbody button >> nth=1")
    visit.page.locator("#annotators-table tbody button").first.click()
    wide = visit.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 400
    assert visit.page.locator("#items-table thead th", has_text="Agreement").is_hidden()
    visit.context.close()


def test_no_serious_accessibility_violation_light_or_dark(browser: Any, report: Path) -> None:
    visit = Visit(browser, report, bypass_csp=True)
    visit.page.click("#items-table tbody button >> nth=0")
    visit.page.click("#annotators-table tbody button >> nth=0")
    for fold in ("matrix", "clusters", "comparison", "trace"):
        visit.page.click(f"#{fold} summary")

    def colours() -> list[str]:
        places = [visit.page.locator(place).first for place in ("body", "#annotators-table .heat td")]
        return [place.evaluate("cell => getComputedStyle(cell).backgroundColor") for place in places]

    light = colours()
    assert visit.violations() == []
    visit.page.emulate_media(color_scheme="dark")
    assert all(colour != before for colour, before in zip(colours(), light, strict=True))
    assert visit.violations(runOnly=["color-contrast"]) == []
    visit.context.close()


def test_a_page_without_a_script(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    item, annotator = np.repeat(np.arange(30), 5), np.tile(np.arange(5), 30)
    numbers = (item + 3.0 * annotator + rng.normal(size=150)).round(2)
    items, raters = [f"{NASTY} {m}" for m in item], [f"rater {n}" for n in annotator]
    ratings = ds.Annotations.from_arrays(items, raters, numbers, label_type="numeric")
    ds.write_report(ratings, ds.NumericRatings().fit(ratings), tmp_path / "p.html", title=NASTY)
    opened = Visit(browser, tmp_path / "p.html", 400, "h2", bypass_csp=True)
    assert opened.page.locator("h2").all_inner_texts() == ["Items", "Annotators"]
    assert [opened.page.locator("tbody").nth(i).locator("tr").count() for i in (0, 1)] == [30, 5]
    assert opened.page.locator("svg circle").count() == 35
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 400
    assert opened.violations() == []
    assert opened.messages == []
    opened.context.close()


def test_the_page_of_judges(browser: Any, tmp_path: Path) -> None:
    """Judges on a page of their own and in a report: every part, hostile texts, phones, accessibility."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=200)
    columns = {f"human{i}": seen(rng, truth, 3, 0.8) for i in range(4)}
    columns |= {"gpt-a": seen(rng, truth, 3, 0.95), f"gpt-b {NASTY}": rng.integers(3, size=200)}
    for name, column in columns.items():
        column[150 * ("human" in name) or 200 :] = -1  # humans label 150 items
    labels = table(columns)
    texts = [NASTY if m % 2 else "=1+1" for m in range(200)]
    kinds = ["llm" if "gpt" in str(name) else "human" for name in labels.annotators]
    people = {"annotator": labels.annotators, "kind": kinds}
    labels = labels.with_tables(items={"item": labels.items, "text": texts}, annotators=people)
    report = ds.judge_report(labels)
    write_judge_page(report, tmp_path / "judges.html", NASTY, "dissensus judges votes.csv")
    visit = Visit(browser, tmp_path / "judges.html", bypass_csp=True)
    titles = ["Judges", "Agreement", "Confusion", "Likely errors", "Joint errors", "Biases"]
    titles += ["Corrected rates", "Tests"]
    assert visit.page.locator("main > section > h2").all_inner_texts() == titles
    assert visit.page.locator("#sections a").all_inner_texts() == titles
    assert visit.column("judges-table", 2) == ["✓ replaces", "✕ no"]
    rows = report.rows()
    for row, kappa in zip(rows, visit.column("judges-table", 4), strict=True):
        assert kappa == f"{row['kappa']:.2f} {row['kappa_low']:.2f} to {row['kappa_high']:.2f}"
    axis = visit.column("judges-axis", 1)
    assert len(axis) == 6
    values = [float(text.split()[0]) for text in visit.column("judges-axis", 3)]
    assert values == sorted(values, reverse=True)
    # confusion of the judge that is chosen, and errors with their texts
    first = visit.page.locator("#judges-confusion td").first.inner_text()
    visit.page.select_option("#confusion-judge", index=1)
    assert visit.page.locator("#judges-confusion td").first.inner_text() != first
    visit.page.select_option("#errors-judge", index=1)
    assert visit.page.locator("#errors blockquote p").first.inner_text() in (NASTY, "=1+1")
    assert visit.page.evaluate("window.hacked") is None
    assert visit.violations("minor moderate serious critical") == []
    visit.page.emulate_media(color_scheme="dark")
    assert visit.violations(runOnly=["color-contrast"]) == []
    assert visit.messages == []
    visit.context.close()
    phone = Visit(browser, tmp_path / "judges.html", width=400, has_touch=True)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 400
    phone.context.close()
    # the same parts in the report of a run, where the items have a table
    ds.write_report(labels, ds.FMM(3).fit(labels), tmp_path / "page.html", held_out=[])
    visit = Visit(browser, tmp_path / "page.html", bypass_csp=True)
    for summary in visit.page.locator("#judges > details > summary").all():
        summary.click()
    assert visit.page.locator("#judges > details > summary").all_inner_texts() == titles[1:]
    assert visit.column("judges-table", 2) == ["✓ replaces", "✕ no"]
    visit.page.locator("#judges blockquote a").first.click()
    assert visit.page.locator("#items-table tr.open").count() == 1
    assert visit.violations() == []
    assert visit.messages == []
    visit.context.close()


# ---- size ---------------------------------------------------------------------------------------------


def test_twenty_thousand_items_stay_responsive(browser: Any, tmp_path: Path) -> None:
    crowd = ds.simulate(20_000, 400, labels_per_item=10, seed=3).annotations
    texts = [f"Remark number {m}, in some words." for m in range(20_000)]
    crowd = crowd.with_tables(items=pa.table({"item": crowd.items, "text": texts}))
    path = tmp_path / "large.html"
    ds.write_report(crowd, ds.FMM(6, max_iter=15).fit(crowd), path, held_out=[])
    assert path.stat().st_size < 6e6
    visit = Visit(browser, path)
    opened = visit.page.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
    slowest = visit.page.evaluate(SLOWEST_INTERACTION)
    visit.context.close()
    assert visit.messages == []
    # milliseconds on a busy machine; docs/report.md has timings without other load
    assert opened < 3000
    assert slowest < 500


def test_pages_of_unusual_crowds(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unanimous crowd, one with too many labels to store, and one without annotators."""
    item, annotator = (column.ravel() for column in np.indices((40, 6)))
    unanimous, large = ds.Annotations.from_arrays(item, annotator, item % 3), canteen(n_items=60)
    counts = ds.Annotations.from_counts(large.counts, classes=large.classes)
    monkeypatch.setattr("dissensus.report.annotators.MAX_PAGE_LABELS", 300)
    for labels in (unanimous, large, counts):
        path = tmp_path / "page.html"
        ds.write_report(labels, ds.FMM(3).fit(labels), path, held_out=[])
        opened = Visit(browser, path)
        opened.page.locator("#items-table tbody tr.row").first.locator("td").first.click()
        assert "Population" in opened.page.locator("#items-table tr.detail thead").inner_text()
        assert opened.page.locator("#annotators").count() == (labels is not counts)
        if labels is not counts:
            opened.page.click("#annotators-table tbody button >> nth=0")
        if labels is unanimous:
            assert "show no groups of annotators" in opened.page.locator("body").inner_text()
        assert opened.messages == []
        opened.context.close()


def test_turns_confusions_and_unstable_items(browser: Any, tmp_path: Path) -> None:
    """Conversations are shown as turns; confusions equal a count of pairs; unstable items are marked."""
    simulated = ds.simulate(12, 8, 3, labels_per_item=4, seed=2).annotations
    texts = [f"User: where is order {n}?\nAssistant: gone\n{NASTY}" for n in range(12)]
    texts[0] = '[{"role": "user", "content": "hello"}, {"role": "bot", "content": "<b>yes</b>"}]'
    texts[1] = "One sentence: no turns."
    labels = simulated.with_tables(items={"item": simulated.items, "text": texts})
    model = ds.Pool(n_chains=2, n_sweeps=20).fit(labels)
    model.item_difference_[:] = 0.01
    model.item_difference_[[3, 5]] = 0.071
    ds.write_report(labels, model, tmp_path / "page.html")
    opened = Visit(browser, tmp_path / "page.html")
    rows = opened.page.locator("#items-table tbody tr.row")
    details = {}
    for n in range(12):
        rows.nth(n).locator(".row-open").click()
        detail = opened.page.locator("tr.detail").nth(n)
        details[rows.nth(n).locator(".id").inner_text()] = detail
    speakers = {item: detail.locator(".turns dt").all_inner_texts() for item, detail in details.items()}
    expected = [["user", "bot"], [], *[["User", "Assistant"]] * 10]
    assert speakers == dict(zip(map(str, labels.items), expected, strict=True))
    assert details[str(labels.items[0])].locator(".turns dd").nth(1).inner_text() == "<b>yes</b>"
    marks = opened.page.locator(".mark", has_text="≈")
    assert marks.count() >= 2
    words = opened.page.get_by_text("another run would move its shares by about 7 percentage points")
    assert words.count() == 2
    # pairs of labels of different annotators of an item, each weighted by 1 / (n − 1)
    frame = labels.to_frame()
    pairs = frame.merge(frame, on="item")
    pairs = pairs[pairs.annotator_x != pairs.annotator_y]
    table = pairs.groupby(["label_x", "label_y"]).size().unstack(fill_value=0)
    shares = (100 * table.div(table.sum(axis=1), axis=0)).to_numpy()
    shown = [int(text) for text in opened.page.locator("#confused td").all_inner_texts()]
    np.testing.assert_allclose(np.array(shown).reshape(3, 3), shares, atol=0.5001)
    assert opened.messages == []
    opened.context.close()
