"""Size of a report, and the time to write, open and use it; also draws the README's picture.

    python -m benchmarks.report                 print the table
    python -m benchmarks.report --write         write it to docs/report.md, and draw a new picture

Writing is measured in processor seconds, opening and using in wall-clock time.
"""

from __future__ import annotations

import argparse
import os
import resource
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
from benchmarks.timing import processor_seconds
from dissensus.datasets.comments import draw_crowd
from dissensus.evaluate.compare import HeldOut
from dissensus.workflow.refine import fit
from experiments.runner import DATA_FOLDER, line, read_dataset, table

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURE = DOCS / "report.md", DOCS / "images" / "report.png"
FIGURES_START, FIGURES_END = "<!-- figures -->\n", "<!-- end of figures -->\n"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM_OPTIONS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
HEAD = ("data", "items", "labels", "file", "made in", "opened in", "slowest sort, filter or search")
SLOWEST_INTERACTION = """() => {
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


LabelsAndModel = tuple[ds.Annotations, Any, list[HeldOut] | None]


def simulated_crowd() -> LabelsAndModel:
    """Simulate 20,000 items with texts of tweet length and 10 labels each, and fit a small model."""
    crowd = ds.simulate(20_000, 500, labels_per_item=10, seed=0).annotations
    words = "a remark of some length about one thing or another, as people write them in passing, number"
    texts = pa.table({"item": crowd.items, "text": [f"{words} {m}" for m in range(crowd.n_items)]})
    crowd = crowd.with_tables(items=texts)
    return crowd, ds.PGM(8, 4).fit(crowd), None


def real_crowd(name: str) -> LabelsAndModel:
    """Read a dataset and fit the default model."""
    annotations = read_dataset(DATA_FOLDER / name)
    run = fit(annotations)
    return annotations, run.model, run.held_out


def measure(name: str, folder: Path, browser: Any) -> str:
    """Write and open the report of a dataset, and return its line of the table."""
    annotations, model, held_out = simulated_crowd() if name == "simulation" else real_crowd(name)
    path, start = folder / f"{name}.html", time.process_time()
    ds.write_report(annotations, model, path, title=name, held_out=held_out)
    made = time.process_time() - start
    loads, slowest = zip(*(open_report(browser, path) for _ in range(3)), strict=True)
    sizes = f"{annotations.n_items:,}", f"{annotations.n_labels:,}", f"{path.stat().st_size / 1e6:.2f} MB"
    return line(name, *sizes, f"{made:.1f} s", f"{min(loads):.2f} s", f"{min(slowest):.0f} ms")


def open_report(browser: Any, path: Path) -> tuple[float, float]:
    """Return the seconds until a page is ready, and the milliseconds of its slowest interaction."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    start = time.perf_counter()
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready]", timeout=60_000)
    seconds = time.perf_counter() - start
    slowest = float(tab.evaluate(SLOWEST_INTERACTION))
    tab.close()
    return seconds, slowest


def time_command(folder: Path) -> str:
    """Time ``dissensus fit`` on jq1, without texts, from the labels to the report."""
    labels = DATA_FOLDER / "jq1" / "annotations.csv"
    command = [shutil.which("dissensus", path=str(Path(sys.executable).parent)) or "dissensus", "fit"]
    before, start = processor_seconds(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*command, str(labels), "-o", str(folder / "refined")], check=True, capture_output=True)
    wall, busy = time.perf_counter() - start, processor_seconds(resource.RUSAGE_CHILDREN) - before
    return (
        "`dissensus fit` on jq1's 20,125 labels (choose a model, fit, judge annotators, write the page): "
        f"{busy:.0f} s of processor time, {wall:.0f} s wall-clock time at a load of {os.getloadavg()[0]:.0f} "
        f"on {os.cpu_count()} cores."
    )


def draw_picture(browser: Any, folder: Path) -> None:
    """Draw the README's picture: the report of the demo."""
    annotations, *_ = draw_crowd(seed=0)
    run = fit(annotations, seed=0)
    path = folder / "demo.html"
    title = "Fine, rude or hateful?"
    ds.write_report(annotations, run.model, path, title=title, held_out=run.held_out)
    tab = browser.new_page(viewport={"width": 1200, "height": 745})
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready]")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=PICTURE)
    tab.close()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the figures to docs/, with a new picture")
    options = parser.parse_args()
    names = [name for name in ("jq1", "hs_brexit") if (DATA_FOLDER / name).is_dir()]
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        folder = Path(temporary)
        lines = [measure(name, folder, browser) for name in [*names, "simulation"]]
        remarks = [time_command(folder)] if "jq1" in names else []
        if options.write:
            draw_picture(browser, folder)
    figures = "\n\n".join([table(HEAD, lines), *remarks]) + "\n"
    print(figures)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(FIGURES_START)
        after = rest.partition(FIGURES_END)[2]
        PAGE.write_text(before + FIGURES_START + figures + FIGURES_END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
