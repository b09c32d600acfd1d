"""How large a report is, how long it takes to make, to open and to use; and the picture of one.

    python benchmarks/bench_report.py                 print the table
    python benchmarks/bench_report.py --write         put it into docs/report.md, and draw a new picture

Real datasets are measured where they are (DISSENSUS_DATA or ../shared/data); the picture is of made-up
remarks. Seconds of making are processor seconds, so that a busy machine does not show in them; opening and
using are by the clock.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import dissensus as ds
from dissensus.evaluate.compare import HeldOut
from dissensus.workflow.refine import fit

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))
PAGE, PICTURE = REPOSITORY / "docs" / "report.md", REPOSITORY / "docs" / "images" / "report.png"
START, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
ARGUMENTS += ["--disable-background-networking", "--disable-component-update"]
SLOWEST = """() => {
  const times = [];
  const timed = (action) => {
    const all = [0, 1, 2].map(() => {
      const start = performance.now();
      action();
      document.body.offsetHeight;
      return performance.now() - start;
    });
    times.push(Math.min(...all));
  };
  const set = (id, value, event) => {
    const field = document.getElementById(id);
    field.value = value;
    field.dispatchEvent(new Event(event));
  };
  for (const head of document.querySelectorAll("#items-table thead button")) timed(() => head.click());
  for (const chip of document.querySelectorAll("#items .chips button")) timed(() => chip.click());
  const who = JSON.parse(document.getElementById("data").textContent).annotators.id[0];
  timed(() => set("items-table-filter-0", "1", "change"));
  timed(() => set("items-table-filter-1", "0", "change"));
  timed(() => set("items-table-filter-2", who, "input"));
  for (const query of ["1", "12", "123"]) timed(() => set("items-table-search", query, "input"));
  return Math.max(...times);
}"""


def data_folder() -> Path:
    return Path(os.environ.get("DISSENSUS_DATA", REPOSITORY.parent / "shared" / "data"))


def large_crowd() -> tuple[ds.Annotations, Any, list[HeldOut] | None]:
    """20,000 items with texts of tweet length, 10 labels each, and a model of moderate size."""
    crowd = ds.simulate(20_000, 500, labels_per_item=10, seed=0).annotations
    words = "a remark of some length about one thing or another, as people write them in passing, number"
    texts = pa.table({"item": crowd.items, "text": [f"{words} {m}" for m in range(crowd.n_items)]})
    crowd = crowd.with_tables(items=texts)
    return crowd, ds.PGM(8, 4).fit(crowd), None


def real(name: str) -> tuple[ds.Annotations, Any, list[HeldOut] | None]:
    folder = data_folder() / name
    annotations = ds.read_annotations(folder / "annotations.csv", items=folder / "items.csv")
    run = fit(annotations)
    return annotations, run.model, run.held_out


def measure(name: str, folder: Path, browser: Any) -> list[str]:
    """One row of the table."""
    annotations, model, held_out = large_crowd() if name == "simulation" else real(name)
    started = time.process_time()
    path = ds.write_report(annotations, model, folder / f"{name}.html", title=name, held_out=held_out)
    made = time.process_time() - started
    loads, slowest = zip(*(opened(browser, path) for _ in range(3)), strict=True)
    return [
        name,
        f"{annotations.n_items:,}",
        f"{annotations.n_labels:,}",
        f"{path.stat().st_size / 1e6:.2f} MB",
        f"{made:.1f} s",
        f"{min(loads):.2f} s",
        f"{min(slowest):.0f} ms",
    ]


def opened(browser: Any, path: Path) -> tuple[float, float]:
    """Seconds until a page is ready, and milliseconds of the slowest of its sorts, filters and searches."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    started = time.perf_counter()
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready]", timeout=60_000)
    seconds = time.perf_counter() - started
    slowest = float(tab.evaluate(SLOWEST))
    tab.close()
    return seconds, slowest


def whole_way(folder: Path) -> str:
    """``dissensus fit`` on jq1's labels, without text, to the report: processor and wall-clock seconds."""
    labels = data_folder() / "jq1" / "annotations.csv"
    command = [shutil.which("dissensus", path=str(Path(sys.executable).parent)) or "dissensus", "fit"]
    before, started = os.times(), time.perf_counter()
    subprocess.run([*command, str(labels), "-o", str(folder / "refined")], check=True, capture_output=True)
    wall, after = time.perf_counter() - started, os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    load = os.getloadavg()[0]
    return (
        "`dissensus fit` on jq1's 20,125 labels (choose among all models, fit, judge annotators, write the "
        f"page): {busy:.0f} s of processor time, {wall:.0f} s by the clock with a load of {load:.0f} on "
        f"{os.cpu_count()} cores."
    )


def draw(browser: Any, folder: Path) -> None:
    """The README's picture: made-up remarks, a crowd that hears irony and one that does not."""
    from report_sample import canteen

    annotations = canteen()
    run = fit(annotations)
    path = folder / "canteen.html"
    ds.write_report(
        annotations, run.model, path, title="What guests say of the canteen", held_out=run.held_out
    )
    tab = browser.new_page(viewport={"width": 1280, "height": 1500})
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready]")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=PICTURE)
    tab.close()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/, with a new picture")
    wanted = parser.parse_args()
    names = [name for name in ("jq1", "hs_brexit") if (data_folder() / name).is_dir()]
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        folder = Path(place)
        rows = [measure(name, folder, browser) for name in [*names, "simulation"]]
        remarks = [whole_way(folder)] if "jq1" in names else []
        if wanted.write:
            draw(browser, folder)
    heads = ["data", "items", "labels", "file", "made in", "opened in", "slowest sort, filter or search"]
    lines = [heads, ["---"] * len(heads), *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    figures = "\n\n".join([table, *remarks]) + "\n"
    print(figures)
    if wanted.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        after = rest.partition(END)[2]
        PAGE.write_text(before + START + figures + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
