"""Run the code on every page of docs/ and compare the printed output with the page."""

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
from tests.helpers.docs import DOCS, run_page
from tests.helpers.export_samples import choice
from tests.helpers.sizes import usually


def copy_canteen(*names: str) -> None:
    """Copy the labels of the canteen dataset to files of these names, and its texts to texts.csv."""
    folder = ds.datasets.path("canteen")
    for name in names:
        shutil.copy(folder / "labels.csv", name)
    shutil.copy(folder / "items.csv", "texts.csv")


def prepare_report() -> dict[str, Any]:
    copy_canteen("votes.csv")
    people = ds.datasets.load("canteen").annotators
    pd.DataFrame({"annotator": people, "team": "one"}).to_csv("people.csv", index=False)
    return {}


def prepare_scale() -> dict[str, Any]:
    copy_canteen("votes.csv", "votes-1.csv")
    frame = pd.read_csv("votes-1.csv")
    frame.iloc[:200].to_parquet("votes-2.parquet")
    Path("exports").mkdir()
    frame.iloc[100:300].to_csv("exports/one.csv", index=False)
    pd.DataFrame({"task": ["comment01"], "label": ["praise"]}).to_csv("gold.csv", index=False)
    ds.write_store("votes.csv", "votes.store")
    return {"ds": ds}


def prepare_importing() -> dict[str, Any]:
    copy_canteen()
    answers = [{"completed_by": n, "result": [choice("mood", mood)]} for n, mood in ((1, "good"), (2, "bad"))]
    task = {"data": {"text": "Great, soup again."}, "annotations": answers}
    Path("project-1.json").write_text(json.dumps([{"id": number, **task} for number in range(3)]))
    from sklearn.linear_model import LogisticRegression

    labels = ds.datasets.load("canteen")
    names = {"model": ds.EmpiricalDistribution().fit(labels), "items": labels.item_table, "pandas": pd}
    features = lambda texts: np.stack([texts.str.len(), texts.str.count("s")], axis=1)  # noqa: E731
    return names | {"LogisticRegression": LogisticRegression, "features": features}


def prepare_text() -> dict[str, Any]:
    labels = ds.datasets.load("canteen")
    shutil.copy(ds.datasets.path("canteen") / "labels.csv", "annotations.csv")
    items = pd.DataFrame({"item": labels.items, "text": labels.item_column("text")})
    items["split"] = ["train", "train", "dev", "test"] * 15
    items.to_csv("items.csv", index=False)
    numbers = np.random.default_rng(0).normal(size=(60, 4))
    columns = {f"f{k}": numbers[:, k] for k in range(4)}
    pd.DataFrame({"item": labels.items, **columns}).to_parquet("features.parquet")
    texts = {"texts_or_features": labels.item_column("text")[:2]}
    return texts | {"items": labels.items[:2], "annotators": labels.annotators[:2]}


SMALLER_SEARCHES = {
    'range(2, 6), "n_annotator_clusters": [1, 2, 3]})': "[2, 3]}, repeats=2, n_jobs=1)",
    "criterion=on_busy_annotators)": "criterion=on_busy_annotators, repeats=2, n_jobs=1)",
    'directory="search", n_jobs=2)': 'directory="search", repeats=2, n_jobs=1)',
}
# Pages with code that need input files: a function that writes them and returns variables, and replacements
# that make the examples smaller or use addresses that exist.
PREPARED: dict[str, tuple[Callable[[], dict[str, Any]], dict[str, str]]] = {
    "budget": (dict, {"labels_shown=(2, 4))": "labels_shown=(2, 4), n_draws=2, n_jobs=1)"}),
    "cluster": (prepare_scale, {"tcp://10.0.0.1:8786": "local", "/data/": "", "PGM(8, 8)": "PGM(2, 2)"}),
    "importing": (prepare_importing, {}),
    "report": (prepare_report, {"PGM(12, 4)": "PGM(4, 2)"}),
    "scale": (prepare_scale, {"8GB": "2GB", "4GB": "2GB"}),
    "selection": (dict, usually(SMALLER_SEARCHES, verify={})),
    "text": (prepare_text, {"range(3, 21)": "[3]", "ds.LDLNM().fit": "ds.LDLNM(epochs=2).fit"}),
}
CONSOLE = {"index", "integrations", "tutorial"}  # pages whose commands run in an empty directory
TESTED_ELSEWHERE = {"gallery": "docs/test_site.py"}
CODE = "```python"
PAGES = {page.stem for page in DOCS.glob("*.md") if CODE in page.read_text("utf-8")} - set(TESTED_ELSEWHERE)
# These take longer than all others together, and run in `make docs` and `make verify` only.
LONG = ("agreement", "budget", "choosing", "cluster", "from-cleanlab", "from-crowd-kit", "tutorial")
MARKS = {page: [pytest.mark.verify] for page in LONG} | {
    page: [pytest.mark.verify, pytest.mark.torch] for page in ("integrations", "text")
}
MARKS["cluster"].append(pytest.mark.cluster)


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("page", [pytest.param(page, marks=MARKS.get(page, [])) for page in sorted(PAGES)])
def test_page_runs_and_prints_its_output(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepare, replacements = PREPARED.get(page, (dict, {}))
    assert run_page(DOCS / f"{page}.md", prepare(), replacements, console=page in CONSOLE)


def test_accuracies_on_the_page_of_models_are_those_of_the_results() -> None:
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    results = (DOCS / "results" / "truth.md").read_text(encoding="utf-8")
    page = page.replace("`--estimate truth` 0", "the default 0")
    accuracies = re.findall(r"([\w–-]+(?: [\w–-]+)?) (0\.\d{4})", page)
    assert len(accuracies) == 4
    assert [name for name, value in accuracies if f"| {name} | {value} |" not in results] == []


def test_numbers_of_chains_are_those_of_the_code() -> None:
    from dissensus.models.hpgm.model import CHAINS, FEWER_SWEEPS, MANY_LABELS, MORE_CHAINS, SWEEPS
    from dissensus.models.latent import LatentPositions
    from dissensus.models.sampled import MAX_ROUNDS, MAX_RUN_DIFFERENCE
    from dissensus.workflow.refine import FAST_SETTINGS

    words = {
        name: " ".join((DOCS / f"{name}.md").read_text("utf-8").split())
        for name in ("choosing", "mathematics")
    }
    chains = f"of {CHAINS} chains ({MORE_CHAINS} from {MANY_LABELS:,} labels on)"
    assert f"{chains} of HPGM, or {LatentPositions().n_chains} of latent positions" in words["choosing"]
    assert chains.replace(" chains", "") in words["mathematics"]
    assert f"at most {100 * MAX_RUN_DIFFERENCE:g} % on average" in words["choosing"]
    assert f"at most {MAX_RUN_DIFFERENCE:g}, or after" in words["mathematics"]
    assert f"({SWEEPS} sweeps; {FEWER_SWEEPS} from {MANY_LABELS:,} labels on;" in words["mathematics"]
    assert {3: "three"}[MAX_ROUNDS] + " rounds" in words["choosing"]
    assert (FAST_SETTINGS["n_chains"], FAST_SETTINGS["n_sweeps"]) == (2, 100)
    assert "two chains of 100 sweeps" in words["choosing"]


def test_pages_tested_elsewhere_are_named_there() -> None:
    for page, test in TESTED_ELSEWHERE.items():
        assert f"{page}.md" in (DOCS.parent / "tests" / test).read_text(encoding="utf-8")


def test_a_page_that_prints_another_number_or_word_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = "```python\nprint('loss 0.082 of 3')\n```\n```text\n"
    for output, right in [("loss 0.084 of 3", True), ("loss 0.095 of 3", False), ("loss 0.082 of 4", False)]:
        page.write_text(f"{block}{output}\n```\n", encoding="utf-8")
        with contextlib.nullcontext() if right else pytest.raises(AssertionError):
            run_page(page)
