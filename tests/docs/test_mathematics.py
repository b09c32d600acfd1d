"""docs/mathematics.md: numbered equations, valid references and complete metrics."""

import re
from pathlib import Path

import pytest

from dissensus.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "mathematics.md"
TAG = re.compile(r"\\tag\{([0-9A-Z]+\.[0-9]+)\}")
REFERENCE = re.compile(r"\(([0-9A-Z]{1,2}\.[0-9]{1,2})\)")


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_displayed_equations_have_unique_numbers(page: str) -> None:
    displayed = re.findall(r"\$\$(.+?)\$\$", page, flags=re.DOTALL)
    numbers = TAG.findall(page)
    assert len(displayed) > 25
    assert [equation for equation in displayed if len(TAG.findall(equation)) != 1] == []
    assert len(set(numbers)) == len(numbers)


def test_equations_are_numbered_by_section_in_order(page: str) -> None:
    section, last = "", 0
    for line in page.splitlines():
        if line.startswith("## "):
            section, last = line.split()[1], 0
        for number in TAG.findall(line):
            assert number == f"{section}.{last + 1}"
            last += 1


def test_references_name_equations(page: str) -> None:
    numbers = set(TAG.findall(page))
    assert set(REFERENCE.findall(page)) <= numbers
    for file in sorted((ROOT / "src").rglob("*.py")):
        cited = re.findall(r"Eq\. \(([0-9A-Z]{1,2}\.[0-9]{1,2})\)", file.read_text(encoding="utf-8"))
        assert set(cited) <= numbers, file


def test_links_refer_to_sections(page: str) -> None:
    titles = re.findall(r"^##+ (.+)$", page, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_formulas_survive_markdown(page: str) -> None:
    # Markdown removes a backslash before punctuation, also inside formulas.
    formulas = re.findall(r"\$\$.+?\$\$|\$[^$]+\$", page, flags=re.DOTALL)
    assert [formula for formula in formulas if re.search(r"\\[,;:!|_{}#%&\\]", formula)] == []
    for formula in formulas:
        assert formula.count("{") == formula.count("}"), formula


def test_every_metric_is_defined(page: str) -> None:
    section = page[page.index("## A Metrics") : page.index("## B ")]
    assert [name for name in METRICS if f"`{name}`" not in section] == []
