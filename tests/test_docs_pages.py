"""Every page of docs/ that has code is run; what it says that is printed is what is printed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from docs_help import DOCS, run_page

# Pages that other tests run, and which.
ELSEWHERE = {
    "annotators.md": "test_plan",
    "gallery.md": "test_site",
    "guided.md": "test_guides",
    "judges.md": "test_judges_docs",
    "kinds.md": "test_kinds",
    "plan.md": "test_plan",
    "recovery.md": "test_guides",
    "scarce.md": "test_guides",
    "selection.md": "test_guides",
    "truth.md": "test_truth",
    "tutorial.md": "test_tutorial",
}
WHOLE = [
    *(
        "index.md",
        "from-crowd-kit.md",
        "from-cleanlab.md",
        "choosing.md",
        "alpha.md",
        "ordinal.md",
        "budget.md",
    ),
    "integrations.md",
]


def canteen(*names: str) -> None:
    """The data set as files here: votes under each of these names, and the texts of the comments."""
    folder = ds.datasets.path("canteen")
    for name in names:
        shutil.copy(folder / "labels.csv", name)
    shutil.copy(folder / "items.csv", "texts.csv")


def for_report() -> dict[str, Any]:
    canteen("votes.csv")
    people = ds.datasets.load("canteen").annotators
    pd.DataFrame({"annotator": people, "team": "one"}).to_csv("people.csv", index=False)
    return {}


def for_store() -> dict[str, Any]:
    canteen("votes-1.csv")
    frame = pd.read_csv("votes-1.csv")
    frame.iloc[:200].to_parquet("votes-2.parquet")
    frame.iloc[200:].to_json("today.jsonl.gz", orient="records", lines=True)
    Path("exports").mkdir()
    frame.iloc[100:300].to_csv("exports/one.csv", index=False)
    pd.DataFrame({"task": ["comment01"], "label": ["praise"]}).to_csv("gold.csv", index=False)
    return {}


def for_scale() -> dict[str, Any]:
    canteen("votes.csv")
    ds.write_store("votes.csv", "votes.store")
    return {"ds": ds}


def for_importing() -> dict[str, Any]:
    canteen()
    result = {"from_name": "mood", "to_name": "text", "type": "choices"}
    tasks = [
        {
            "id": number,
            "data": {"text": "Great, soup again."},
            "annotations": [
                {"completed_by": who, "result": [{**result, "value": {"choices": [mood]}}]}
                for who, mood in ((1, "good"), (2, "bad"))
            ],
        }
        for number in range(3)
    ]
    Path("project-1.json").write_text(json.dumps(tasks))
    from sklearn.linear_model import LogisticRegression

    labels = ds.datasets.load("canteen")
    known = {"model": ds.EmpiricalDistribution().fit(labels), "items": labels.item_table, "pandas": pd}
    features = lambda texts: np.stack([texts.str.len(), texts.str.count("s")], axis=1)  # noqa: E731
    return known | {"LogisticRegression": LogisticRegression, "features": features}


def for_text() -> dict[str, Any]:
    labels = ds.datasets.load("canteen")
    shutil.copy(ds.datasets.path("canteen") / "labels.csv", "annotations.csv")
    items = pd.DataFrame({"item": labels.items, "text": labels.item_column("text")})
    items["split"] = ["train", "train", "dev", "test"] * 15
    items.to_csv("items.csv", index=False)
    numbers = np.random.default_rng(0).normal(size=(60, 4))
    pd.DataFrame({"item": labels.items, **{f"f{k}": numbers[:, k] for k in range(4)}}).to_parquet(
        "features.parquet"
    )
    texts = {"texts_or_features": labels.item_column("text")[:2]}
    return texts | {"items": labels.items[:2], "annotators": labels.annotators[:2]}


# The page, what it takes for granted, and what is made smaller or nearer.
PREPARED: dict[str, tuple[Callable[[], dict[str, Any]], dict[str, str]]] = {
    "report.md": (for_report, {"PGM(12, 4)": "PGM(4, 2)"}),
    "store.md": (for_store, {}),
    "scale.md": (for_scale, {"8GB": "2GB"}),
    "importing.md": (for_importing, {}),
    "text.md": (for_text, {"range(3, 21)": "[3]", "ds.LDLNM().fit": "ds.LDLNM(epochs=2).fit"}),
    "cluster.md": (for_scale, {"tcp://10.0.0.1:8786": "local", "/data/": "", "PGM(8, 8)": "PGM(2, 2)"}),
}
# These take longer than all others together: `make docs` and `make verify` run them.
LONG = {
    "integrations.md": [pytest.mark.torch, pytest.mark.verify],
    "text.md": [pytest.mark.torch, pytest.mark.verify],
    "cluster.md": [pytest.mark.cluster, pytest.mark.verify],
    **{
        f"{name}.md": [pytest.mark.verify]
        for name in ("from-crowd-kit", "from-cleanlab", "choosing", "alpha", "ordinal", "budget")
    },
}


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("page", [pytest.param(page, marks=LONG.get(page, [])) for page in WHOLE])
def test_the_page_runs_and_prints_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / page)


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("page", [pytest.param(page, marks=LONG.get(page, [])) for page in PREPARED])
def test_the_code_of_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepare, instead = PREPARED[page]
    assert run_page(DOCS / page, prepare(), instead, console=False)


def test_what_the_page_of_models_quotes_was_measured() -> None:
    rows = [
        line
        for line in (DOCS / "choosing.md").read_text(encoding="utf-8").splitlines()
        if "](results/" in line
    ]
    assert len(rows) >= 3
    numbers = 0
    for row in rows:
        page = re.search(r"\]\((results/[\w-]+\.md)\)", row)[1]  # type: ignore[index]
        measured, evidence = (DOCS / page).read_text(encoding="utf-8"), row.split("|")[4]
        assert all(quote in measured for quote in re.findall(r'"([^"]+)"', evidence)), f"renew {row}"
        for name, value in re.findall(r"([\w–-]+(?: [\w–-]+)?) (0\.\d{4})", evidence):
            assert f"| {name} | {value} |" in measured, f"renew {name} {value}"
            numbers += 1
    assert numbers == 4


def test_every_page_with_code_is_run_by_a_test() -> None:
    pages = {page.name for page in DOCS.glob("*.md") if "```python" in page.read_text(encoding="utf-8")}
    assert pages == {*WHOLE, *PREPARED, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        text = (Path(__file__).parent / f"{test}.py").read_text(encoding="utf-8")
        assert page in text or page.removesuffix(".md") in text


def test_a_page_that_prints_another_number_or_word_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for said, right in [("loss 0.084 of 3", True), ("loss 0.095 of 3", False), ("loss 0.082 of 4", False)]:
        page.write_text(f"```python\nprint('loss 0.082 of 3')\n```\n```text\n{said}\n```\n", encoding="utf-8")
        with contextlib.nullcontext() if right else pytest.raises(AssertionError):
            run_page(page)
