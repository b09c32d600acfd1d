"""The paper's evaluation on two small crowds with sentences invented here."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from dissensus.evaluate.search import split_halves
from dissensus.metrics import entropy, kl
from dissensus.models.pgm.m_step import Parameters, Priors, log_joint
from dissensus.text.learners.base import Learner
from reproduction import derived, measures, printed
from reproduction.__main__ import main, parser, scale_of
from reproduction.annealing import PrintedAnnealing, propose_shares
from reproduction.answers import UNDECIDED, answer_summary, answer_table, choice_summary
from reproduction.cells import Cell, FinishedCells
from reproduction.columns import BY_PAIR, DEPARTURES, ITEM, SOFT
from reproduction.criteria import criterion_of
from reproduction.datasets import find_datasets, load
from reproduction.derived import blend_weight, difference
from reproduction.plan import PARTS, Plan, Scale
from reproduction.results import Results
from reproduction.run import Reproduction, reproduce, request
from reproduction.tables import verdict_of
from tests.helpers.encoder import write_encoder

TOPICS = (("rain", "cold", "wet"), ("sun", "warm", "dry"), ("job", "desk", "late"))
WORDS = sorted({word for topic in TOPICS for word in topic} | {"the", "day", "is"})


def write_crowd(folder: Path, seed: int, *, text: bool) -> None:
    """Write a simulated crowd; its sentences reveal the most frequent class."""
    labels = ds.simulate(
        90, 14, 3, labels_per_item=14, n_item_clusters=3, n_annotator_clusters=2, alpha=0.4, seed=seed
    ).annotations
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    labels.to_frame().to_csv(folder / "annotations.csv", index=False)
    top = labels.counts.argmax(axis=1)
    gold = {"item": labels.items, "label": labels.classes[top]}
    pd.DataFrame(gold).to_csv(folder / "gold.csv", index=False)
    if text:
        texts = [" ".join(["the day is", *rng.choice(TOPICS[t], 3)]) for t in top]
        parts = [["train", "train", "dev", "test"][i % 4] for i in range(labels.n_items)]
        items = {"item": labels.items, "text": texts, "split": parts}
        pd.DataFrame(items).to_csv(folder / "items.csv", index=False)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"), WORDS)


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of word vectors for the words of the crowds."""
    file = tmp_path_factory.mktemp("words") / "glove.txt"
    rng = np.random.default_rng(0)
    lines = [" ".join([word, *map(str, rng.normal(size=4).round(3))]) for word in WORDS]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def crowds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with jq1 (texts and splits) and tones (neither)."""
    folder = tmp_path_factory.mktemp("data")
    write_crowd(folder / "jq1", 1, text=True)
    write_crowd(folder / "tones", 2, text=False)
    return folder


@pytest.fixture(scope="module")
def tiny(encoder: Path, glove: Path, tmp_path_factory: pytest.TempPathFactory) -> Scale:
    sizes: dict[str, Any] = {"item_clusters": (2, 3), "annotator_clusters": (2,), "fmm_clusters": (2, 3)}
    sizes |= {"sizes": (3,), "repeats": 2, "own_repeats": 2, "search_repeats": 1, "finalists": 1, "seeds": 2}
    sizes |= {"cnn_clusters": (2,), "cnn_search_repeats": 1, "cnn_finalists": 1, "paper_repeats": 2}
    sizes |= {"evaluations": 3, "labels_shown": (2,), "recovery_fmm": (2,), "recovery_pgm": ((2, 2),)}
    sizes |= {"draws": 2, "cnn": {"epochs": 2, "dimension": 4, "filters": 4}}
    sizes |= {"encoder": {"epochs": 1}, "ldlnm": {"epochs": 3}, "embedding": str(encoder)}
    other_encoder = write_encoder(tmp_path_factory.mktemp("other"), WORDS, seed=1)
    sizes |= {"as_printed": True, "printed_embedding": str(other_encoder), "glove": str(glove)}
    return Scale(name="tiny", hidden_splits=2, n_boot=50, **sizes)


@pytest.fixture(scope="module")
def folder(crowds: Path, tiny: Scale, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The output of a run of all parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISSENSUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        folder = tmp_path_factory.mktemp("out") / "paper"
        run_tiny(folder, crowds, tiny, ["jq1", "tones"])
        yield folder


def page_of(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def run_tiny(folder: Path, crowds: Path, scale: Scale, names: list[str], only: Any = ()) -> Reproduction:
    return reproduce(folder, data=crowds, names=names, only=only, scale=scale, n_jobs=1, progress=False)


def cell_of(folder: Path, name: str) -> Any:
    return json.loads((folder / f"cells/{name}.json").read_text(encoding="utf-8"))


@pytest.mark.slow
class TestWholeRun:
    def test_all_parts_are_on_the_page(self, folder: Path) -> None:
        text = page_of(folder)
        titles = ("Table 1", "Table 2", "Table 3: KL", "Table 3: accuracy", "PD", "RQ1", "RQ2", "RQ3", "CBCC")
        for title in (*titles, "Soft or hard"):
            assert title in text
        models = ("PD", "constant", "uniform", "HPGM, soft, on embeddings", "FMM, not snapped")
        for model in (*models, "CBCC, soft, on embeddings", "LDL-NM, defaults, seeds averaged"):
            assert re.search(rf"^\| {re.escape(model)} \|", text, re.MULTILINE)
        figures = re.findall(r"\]\((\S+\.svg)\)", text)
        assert {"tsne-jq1.svg", "recovery-tones.svg"} <= set(figures)
        for figure in figures:
            assert (folder / figure).read_text(encoding="utf-8").startswith("<svg")
        assert not re.search(r"\bnan\b|\{\w+\}", text)

    def test_the_page_is_rendered_from_the_records(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "cells.jsonl").write_bytes((folder / "cells.jsonl").read_bytes())
        assert main(["--render", str(tmp_path)]) == 0
        assert page_of(tmp_path).split("## Figures")[0] == page_of(folder).split("## Figures")[0]

    def test_tables_show_the_means_of_their_cells(self, folder: Path) -> None:
        page = page_of(folder)
        for key, title in (("pd", "PD"), ("bp_soft", "PGM (bp), soft, on embeddings")):
            runs = [cell_of(folder, f"jq1/{key}-{n}")["numbers"]["runs"][0]["test"]["kl"] for n in (0, 1)]
            error = abs(runs[0] - runs[1]) / 2  # standard error of two values
            assert f"| {title} | **{np.mean(runs):.3f}** ± {error:.3f}" in page
        inside = [cell_of(folder, f"jq1/bp-{n}")["numbers"]["inside"][0]["test"]["kl"] for n in (0, 1)]
        assert f"| PGM (bp), sum inside, S chosen on dev | **{np.mean(inside):.3f}**" in page
        clusters = cell_of(folder, "tones/vb-clusters-0")["numbers"]["kl"]
        assert re.search(rf"\| tones \| PGM \(vb\) \| \d+ × \d+ \| \*\*{np.mean(clusters):.3f}\*\*", page)
        hidden = cell_of(folder, "jq1/cbcc-hidden-0")["numbers"]["pair"]
        assert f"| CBCC | **{np.mean(hidden):.3f}**" in page
        accuracy = [cell_of(folder, f"{n}/bp-gold-0")["numbers"]["accuracy"] for n in ("jq1", "tones")]
        assert f"| PGM (bp) | {accuracy[0]:.3f} | {accuracy[1]:.3f} |" in page

    def test_ensembles_and_comparisons_without_dropout(self, folder: Path, crowds: Path) -> None:
        gold = load("jq1", find_datasets(crowds)["jq1"]).gold["test"]
        files = [folder / "cells" / "jq1" / f"ldlnm_default-{n}.npz" for n in (0, 1)]
        mean = np.mean([np.load(file)["test"][0] for file in files], axis=0, dtype=np.float64)
        ensemble = Results.read(folder).derived["ensembles"]["jq1"]["ldlnm_default_ensemble"]
        np.testing.assert_allclose(ensemble["test"]["kl"], kl(gold, mean), rtol=1e-5)
        gold = gold + 1e-5
        losses = []
        for name in ("ldlnm", "ldlnm_alone"):
            with np.load(folder / "cells" / "jq1" / f"{name}-0.npz") as arrays:
                predicted = arrays["without_dropout_test"][0].astype(np.float64) + 1e-5
            losses.append((gold * np.log(gold / predicted)).sum(axis=1).mean())
        page = page_of(folder)
        pair = "LDL-NM, dropout off | LDL-NM without annotators, dropout off"
        assert f"| test KL | {pair} | {losses[0] - losses[1]:+.3f} (" in page

    def test_departures_are_undone_alone_and_together(self, folder: Path, glove: Path) -> None:
        def settings(name: str) -> Any:
            return cell_of(folder, f"jq1/{name}-0")["cell"]["settings"]

        bp = settings("bp-printed-everything")
        sizes = {"n_item_clusters": 10, "n_annotator_clusters": 12}
        assert bp["sizes"] == {**sizes, "start": "random", "bp_rounds": 10}
        assert bp["learner"]["glove"] == hashlib.sha256(glove.read_bytes()).hexdigest()
        assert str(glove) not in (folder / "cells.jsonl").read_text(encoding="utf-8")
        annealed = settings("annealing-printed-everything")["sizes"]
        assert (annealed["temperature"], annealed["cooling"], annealed["ascent"]) == (1.0, 1.0, False)
        assert (annealed["n_item_clusters"], annealed["start"]) == (4, "random")
        network = settings("ldlnm-printed-everything")
        ours, epoch = settings("ldlnm"), settings("ldlnm-printed-epoch")
        assert network["evaluations"] == 3
        printed_network = {"dev_size": 0.0, "rescale": False, "head": "label", "reduce": "mode"}
        assert network["network"] == {**ours["network"], **printed_network}
        assert [settings(f"{name}-printed-everything")["guide"] for name in ("fmm", "annealing", "bp")] == [
            *("fmm_vb", "printed_annealing", "bp")
        ]
        assert network["features"] != ours["features"] == epoch["features"]
        epochs = [cell_of(folder, f"jq1/{n}-0")["numbers"]["epoch"] for n in ("ldlnm-printed-epoch", "ldlnm")]
        assert epochs[0] == -1 < epochs[1]  # as printed, no epoch is chosen
        page = page_of(folder).partition("## As printed\n")[2]
        # of LDL-NM and of the clusters of PGM on jq1
        for row in (
            f"| none, but {printed.REPEATS} repeats |",
            "| GloVe word vectors |",
            "| *printed* | 0.408 ± 0.004 |",
            "| *printed* | 0.523 |",
        ):
            assert row in page

    def test_finished_cells_are_kept_unless_settings_change(
        self, folder: Path, crowds: Path, tiny: Scale
    ) -> None:
        content = cell_of(folder, "jq1/fmm-1")
        assert content["cell"]["settings"]["seed"] == 1
        assert {"dissensus", "numpy", "torch"} <= set(content["versions"])
        before = {file: file.stat().st_mtime_ns for file in folder.glob("cells/**/*.json")}
        (folder / "cells/jq1/softmax-0.json").unlink()
        (folder / "cells/tones/cbcc-gold-0.json").write_text("{", encoding="utf-8")
        again = run_tiny(folder, crowds, tiny, ["jq1", "tones"])
        assert (again.n_measured, again.n_finished) == (2, len(before) - 2)
        changed = {file.name for file in before if file.stat().st_mtime_ns != before[file]}
        assert changed == {"softmax-0.json", "cbcc-gold-0.json"}
        again = run_tiny(folder, crowds, replace(tiny, hidden_splits=1), ["tones"], only=["hidden"])
        assert (again.n_measured, again.n_finished) == (8, 10)  # eight models; ten searches are kept


def test_as_printed_cells_survive_a_later_run(crowds: Path, tmp_path: Path, tiny: Scale) -> None:
    folder = tmp_path / "out"
    run_tiny(folder, crowds, tiny, ["jq1"], only=["table2"])
    run_tiny(folder, crowds, replace(tiny, as_printed=False), ["jq1"], only=["table2"])
    assert Results.read(folder).has("jq1", "bp-clusters-printed-rounds")
    assert "## As printed" in page_of(folder)


@pytest.mark.slow
def test_the_command_line(crowds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", str(crowds), "--sets", "tones", "--only", "table1", "-o", str(tmp_path)]
    for line in ("1 cells measured", "0 cells measured"):
        assert main(words) == 0
        assert line in capsys.readouterr().out
    page = page_of(tmp_path)
    assert "Written by `python -m reproduction --sets tones --only table1`" in page
    assert "| tones | 90 | 14 | 14.00 | 3 |" in page


def test_invalid_input_is_one_line_and_writes_nothing(crowds: Path, tmp_path: Path, capsys: Any) -> None:
    for folder, options, message in [
        (crowds, ["--sets", "jq11"], "has no dataset 'jq11'; did you mean 'jq1'?"),
        (crowds, ["--sets", "zzz"], "has no dataset 'zzz'; it has jq1, tones"),
        (crowds, ["--only", "table4"], "must be among table1"),
        (crowds, ["--glove", "here.txt"], "--glove needs --as-printed; add it"),
        (crowds, ["--as-printed", "--glove", "nowhere.txt"], "nowhere.txt: no such file of word vectors"),
        (tmp_path / "nowhere", [], "no such data folder"),
        (tmp_path, [], "contains neither folders with annotations"),
    ]:
        assert main(["--data", str(folder), *options, "-o", str(tmp_path / "out")]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert message in err
        assert not (tmp_path / "out").exists()
    default = request(crowds, only=["table1"])
    assert list(default.files) == ["jq1"]
    assert "weather_sentiment_amt" in default.absent


def test_the_authors_files_are_read(tmp_path: Path) -> None:
    columns = ["message_id", "worker_id", "label", "message", "platform", "label_vector"]
    folder = tmp_path / "jobs" / "jobsQ1" / "splits"
    folder.mkdir(parents=True)
    for number, part in enumerate(("train", "dev", "test")):
        rows = [[100 + number, *pair, f"text {number}", "mt", 1] for pair in (("a", "yes"), ("b", "no"))]
        content = {"columns": columns, "index": [0, 1], "data": rows}
        (folder / f"jobQ1_BOTH_{part}.json").write_text(json.dumps(content), encoding="utf-8")
    files = find_datasets(tmp_path)
    assert list(files) == ["jq1"]
    data = load("jq1", files["jq1"])
    assert not data.seeded
    items = {name: part.items.tolist() for name, part in data.parts.items()}
    assert items == {"train": ["100"], "dev": ["101"], "test": ["102"]}
    assert data.texts("dev") == ["text 1"]
    np.testing.assert_allclose(data.gold["test"], [[0.5, 0.5]], rtol=1e-12)


def test_a_dataset_without_splits_is_split_and_sampled(crowds: Path) -> None:
    data = load("tones", find_datasets(crowds)["tones"])
    assert data.seeded
    assert len(data.parts["train"].items) == 45
    assert len({item for part in data.parts.values() for item in part.items.tolist()}) == 90
    assert load("jq1", find_datasets(crowds)["jq1"], max_items=40).annotations.n_items == 40


def contrast(value: float, low: float, high: float, dataset: str = "jq1") -> dict[str, Any]:
    row = {"question": "RQ1", "measure": "test KL", "first": "PGM (bp)", "second": "FMM", "dataset": dataset}
    return row | {"value": value, "low": low, "high": high}


def test_verdicts_and_ties() -> None:
    assert verdict_of(contrast(-0.02, -0.03, -0.01)) == "better"
    assert verdict_of(contrast(0.02, 0.01, 0.03)) == "worse"
    assert verdict_of(contrast(-0.02, -0.05, 0.01)) == verdict_of(contrast(0.02, 0.0, 0.04)) == "tie"
    rows = [contrast(-0.2, -0.3, -0.1), contrast(0.0, -0.1, 0.1, "jq2"), contrast(-0.2, -0.3, -0.1, "jq3")]
    assert answer_summary(rows) == (
        "Of 3 comparisons here, the first model is better in 2, tied in 1 and worse in 0."
    )
    cells = "-0.200 (-0.300, -0.100) better | +0.000 (-0.100, +0.100) tie | -0.200 (-0.300, -0.100) better"
    assert f"| test KL | PGM (bp) | FMM | {cells} |" in answer_table(rows)


def test_a_quick_run_has_no_verdicts() -> None:
    rows = [contrast(-0.2, -0.3, -0.1), contrast(0.2, 0.1, 0.3, "jq2"), contrast(0.0, -0.1, 0.1, "jq3")]
    text = answer_summary(rows, decided=False) + answer_table(rows, decided=False)
    assert UNDECIDED == "not decided (quick)"
    assert text.count(UNDECIDED) == 4  # the summary and three cells
    assert not re.search(r"\b(better|worse|tied?)\b", text)


def test_verdicts_that_depend_on_the_choice_of_k_and_l_are_listed() -> None:
    reported = [contrast(0.0, -0.1, 0.1), contrast(0.2, 0.1, 0.3, "jq2")]
    by_pair = [row | {"measure": f"test KL, {BY_PAIR}"} for row in reported]
    by_pair[0] |= {"low": 0.01}
    text = choice_summary([*reported, *by_pair, contrast(-1.0, -2.0, -0.5, "jq3")])
    assert "better in 0, tied in 1 and worse in 1" in text
    assert "better in 0, tied in 0 and worse in 2" in text
    assert text.endswith("in 1 of 2: PGM (bp) less FMM on jq1, test KL, tie or worse.")
    # The other choice is not counted with the reported measure.
    assert "Of 2 comparisons here" in answer_summary([*reported, *by_pair])


def test_columns_of_a_kind_are_compared_over_shared_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    three = [[1.0, 2.0], [3.0, 4.0], [50.0, 60.0]]
    runs = {"bp": three, "fmm": [[0.0, 1.0], [1.0, 1.0]], "ldlnm": [[0.0, 1.0]], "pd": [[2.0, 0.0]] * 4}
    monkeypatch.setattr(derived, "kl_of_runs", lambda plan, name, key: np.array(runs[key]))
    plan: Any = None
    assert difference(plan, "jq1", "bp", "fmm").tolist() == [[1.0 - 0.0, 2.0 - 1.0], [3.0 - 1.0, 4.0 - 1.0]]
    assert difference(plan, "jq1", "bp", "ldlnm").tolist() == [[1.0, 1.0], [3.0, 3.0], [50.0, 59.0]]
    assert difference(plan, "jq1", "bp", "pd").tolist() == [[-1.0, 2.0], [1.0, 4.0], [48.0, 60.0]]


def test_a_blend_takes_the_best_weight_on_dev() -> None:
    # w (1, 0) + (1 − w) (0, 1) equals the gold distribution at w = 0.7
    weight = blend_weight(np.array([[0.7, 0.3]]), np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    np.testing.assert_allclose(weight, 0.7, rtol=1e-12)


@pytest.mark.data
def test_printed_figures_agree_with_the_papers_source(data_dir: Path) -> None:
    """Read every figure of Tables 2 and 3 from the LaTeX source, row by row."""
    sources = sorted((data_dir.parent / "seed").glob("*.txt"))
    if not sources:
        pytest.skip("the paper's source is not available")
    text = sources[0].read_text(encoding="utf-8")
    results = text[text.index("\\label{tab:main_results}") :]
    columns = ("pd", "fmm", "annealing", "bp", "ldlnm")
    for name in printed.PAPER_SETS:
        kl_row, accuracy_row = re.findall(rf"{name.upper()} &(.*?)\\\\", results)
        for row, table in ((kl_row, printed.KL), (accuracy_row, printed.ACCURACY)):
            figures = re.findall(r"([\d.]+)\$\\pm\$([\d.]+)", row)
            assert [table[key][name] for key in columns] == [tuple(map(float, pair)) for pair in figures]
    clusters = text[text.index("\\label{tab:unsupervised_results}") :]
    for name in printed.PAPER_SETS:
        block = clusters[clusters.index(f"{name.upper()} &") :]
        kls, Ls, Ks = (
            re.findall(r"\d+(?:\.\d+)?", block.partition(f"${symbol}$")[2].partition("\\\\")[0])
            for symbol in ("D_{KL}", "L", "K")
        )
        cells = [printed.TABLE_2[key][name] for key in ("fmm", "annealing", "bp")]
        assert [cell.kl for cell in cells] == [float(value) for value in kls]
        assert [cell.item_clusters for cell in cells] == [int(value) for value in Ks]
        assert [cell.annotator_clusters for cell in cells] == [None, *map(int, Ls)]


@pytest.mark.data
def test_table_1_is_about_these_data(data_dir: Path) -> None:
    """Compare Table 1 with the data, and the printed FMM column with a constant prediction."""
    for name, summary in printed.TABLE_1.items():
        data = load(name, data_dir / name)
        counts = data.annotations.counts
        assert (data.annotations.n_items, data.annotations.n_annotators) == summary[:2]
        assert abs(entropy(counts / counts.sum(axis=1, keepdims=True)) - summary.entropy) < 0.001
        inputs = measures.Inputs({name: data}, FinishedCells(data_dir))
        numbers, _ = measures.describe(inputs, Cell(name, "describe", "describe"))
        assert abs(numbers["constant"]["kl"] - printed.KL["fmm"][name].value) < 0.005
        assert abs(numbers["constant"]["onehot_accuracy"] - printed.ACCURACY["fmm"][name].value) < 0.0025
        assert numbers["uniform"]["kl"] < printed.KL["pd"][name].value + 1e-3  # uniform is no worse than PD
        assert numbers["uniform"]["accuracy"] == pytest.approx(1 / summary.classes)


# ---- one cell, computed independently -------------------------------------------------------------------


class Topics(Learner):
    """A learner that counts the words of each topic, with one pseudo-count."""

    def _inputs(self, X: Any) -> list[str]:
        return list(X)

    def _fit(self, X: Any, targets: Any, dev: Any) -> None:
        pass

    def _predict(self, X: list[str]) -> Any:
        counts = np.array([[1 + sum(word in text for word in topic) for topic in TOPICS] for text in X])
        return counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_guided_cell_follows_the_paper(seed: int, crowds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check clusters weighted by Ω, the annotator sum outside, S = 1, and hard snapping."""
    monkeypatch.setattr(measures, "learner_of", lambda *_: Topics())
    data = load("jq1", find_datasets(crowds)["jq1"])
    sizes = {"n_item_clusters": 6, "n_annotator_clusters": 3}
    settings = {"guide": "bp", "sizes": sizes, "learner": {}, "seed": seed}
    inputs = measures.Inputs({"jq1": data}, FinishedCells(crowds))
    numbers, arrays = measures.guided(inputs, Cell("jq1", "guided", "bp", 0, settings))
    pgm = ds.PGM(6, 3, seed=seed).fit(data.parts["train"])
    theta, psi, omega = pgm.theta_, pgm.psi_, pgm.omega_
    h = Topics()._predict(data.texts("test"))

    def projected(population: Any, outside: bool) -> Any:
        """Return Y' of arg max_k ψ_k Σ_l Ω_l Π_p Θ_klp^{h_p}, or of arg max_k ψ_k Π_p Y'_kp^{h_p}."""
        likelihood = np.exp(np.einsum("np,klp->nkl", h, np.log(theta))) @ omega
        weights = psi * (likelihood if outside else np.exp(h @ np.log(population).T))
        return population[weights.argmax(axis=1)]

    by_omega = np.einsum("l,klp->kp", omega, theta)
    by_load = np.einsum("l,klp->kp", pgm.population_weights_, theta)
    np.testing.assert_allclose(arrays["test"][0], projected(by_omega, outside=True), rtol=1e-5)
    refined = by_omega[pgm.item_clusters_.argmax(axis=1)]
    assert numbers["refined_kl"] == pytest.approx(kl(data.gold["train"], refined), rel=1e-9)
    # The alternatives differ enough to be noticed.
    assert np.abs(projected(by_omega, outside=False) - projected(by_omega, outside=True)).max() > 0.01
    assert np.abs(by_load - by_omega).max() > 0.01


def test_table_2_weights_annotators_equally(crowds: Path) -> None:
    """Check KL(empirical ‖ Σ_l Ω_l Θ_kl of the most likely cluster), 1e-5 on both sides."""
    train = load("jq1", find_datasets(crowds)["jq1"]).parts["train"]
    pgm = ds.PGM(3, 2).fit(train)
    estimate = np.einsum("l,klp->kp", pgm.omega_, pgm.theta_)[pgm.item_clusters_.argmax(axis=1)] + 1e-5
    gold = train.counts / train.counts.sum(axis=1, keepdims=True) + 1e-5
    expected = (gold * np.log(gold / estimate)).sum(axis=1).mean()
    sizes = {"n_item_clusters": 3, "n_annotator_clusters": 2}
    assert measures.cluster_divergence(train, "bp", sizes, 0) == pytest.approx(expected, rel=1e-9)


def test_a_cells_identity_contains_all_settings(crowds: Path, tiny: Scale, tmp_path: Path) -> None:
    """Change each setting in turn: the cells that depend on it must get another identity."""
    data = load("jq1", find_datasets(crowds)["jq1"])
    data = replace(data, features_fingerprint="the embeddings")
    parts = {"jq1": ("table1", "table2", "table3", "hidden", "recover", "gold")}

    def identities(data: Any = data, scale: Scale = tiny) -> dict[str, str]:
        plan = Plan(scale, {"jq1": data}, parts, tuple(PARTS), FinishedCells(tmp_path))
        return {cell.path: json.dumps(cell.identity, sort_keys=True) for cell in plan.cells()}

    before = identities()

    def changed(**changes: Any) -> set[str]:
        after = identities(**changes)
        return {path for path in before if after.get(path) != before[path]}

    def cells(*words: str) -> set[str]:
        return {path for path in before if any(f"/{word}-0." in path for word in words)}

    assert changed(data=replace(data, fingerprint="other labels")) == set(before)
    assert changed(data=replace(data, seeded=True)) == set(before)
    on_features = cells("softmax", "guided", "fmm_soft", "bp_soft", "ldlnm", "ldlnm_alone", "ldlnm_default")
    on_features |= cells("hpgm_soft", "bp_soft_by_pair", "bp-soft-search")
    of_others = changed(data=replace(data, features_fingerprint="of another encoder"))
    assert on_features <= of_others
    assert not of_others & cells("pd", "fmm", "bp", "describe", "bp-search", "bp-hidden", "recovery")
    assert not of_others & cells("bp-item-search", "bp-cnn-search")
    kinds = ("search", "item-search", "soft-search")
    searches = cells(*(f"{key}-{kind}" for key in ("bp", "vb", "annealing") for kind in kinds))
    cnn_searches = cells("fmm-cnn-search", "bp-cnn-search")
    decided: dict[str, tuple[Any, set[str]]] = {
        "cnn": ({"epochs": 3}, cells("pd", "fmm", "bp") | cnn_searches),
        "cnn_clusters": ((3,), cnn_searches),
        **dict.fromkeys(("cnn_search_repeats", "cnn_finalists"), (2, cnn_searches)),
        "paper_repeats": (None, cells("pd-printed-repeats")),
        "ldlnm": ({"epochs": 4}, cells("ldlnm", "ldlnm-search", "ldlnm_default")),
        **{"encoder": ({"epochs": 2}, cells("encoder")), "embedding": ("another", cells("encoder"))},
        **{"item_clusters": ((2, 4), searches), "annotator_clusters": ((3,), searches)},
        "fmm_clusters": ((2, 4), cells("fmm-search")),
        "communities": ((4,), cells("cbcc-search", "cbcc-soft-search")),
        **dict.fromkeys(("search_repeats", "finalists"), (2, searches | cells("fmm-search", "ldlnm-search"))),
        "search_patience": (7, cells("ldlnm-search")),
        "sizes": ((4,), cells("ldlnm-search", "ldlnm_alone-search")),
        "seeds": (3, cells("bp-clusters", "fmm-clusters-paper", "bp-clusters-printed-rounds")),
        "hidden_splits": (3, cells("bp-hidden", "counts-hidden")),
        **dict.fromkeys(("labels_shown", "recovery_fmm"), ((3,), cells("recovery"))),
        **{"draws": (3, cells("recovery")), "recovery_pgm": (((3, 2),), cells("recovery"))},
        "evaluations": (4, cells("ldlnm", "ldlnm_alone", "ldlnm-printed-everything")),
    }
    # Other fields decide the number of cells, the labels, or numbers derived from finished cells.
    elsewhere = {"name", "repeats", "own_repeats", "as_printed", "max_items", "n_boot", "glove"}
    elsewhere |= {"printed_embedding"}
    assert {field.name for field in fields(Scale)} == elsewhere | set(decided)
    for setting, (value, dependent) in decided.items():
        assert dependent, setting
        assert dependent <= changed(scale=replace(tiny, **{setting: value})), setting
    (tmp_path / "other.txt").write_text("the 1 2 3 4\n")
    of_others = changed(scale=replace(tiny, glove=str(tmp_path / "other.txt")))
    assert cells("pd-printed-everything", "fmm-printed-glove", "bp-printed-everything") <= of_others
    assert not of_others & cells("pd", "fmm", "fmm-printed-start", "ldlnm-printed-everything")


def test_a_search_for_soft_columns_scores_the_kl_that_they_report(
    crowds: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    data = load("jq1", find_datasets(crowds)["jq1"], embedded=True, embedding=str(encoder))
    sizes = {"n_item_clusters": 3, "n_annotator_clusters": 2}
    settings = {"guide": "bp", "sizes": sizes, "seed": 4}
    inputs = measures.Inputs({"jq1": data}, FinishedCells(crowds))
    numbers, arrays = measures.guided_soft(inputs, Cell("jq1", "guided_soft", "bp_soft", 0, settings))
    score = criterion_of(SOFT, data.parts["dev"], {})(ds.PGM(3, 2, seed=4), data.parts["train"], 4)
    assert score == pytest.approx(-numbers["runs"][0]["dev"]["kl"], rel=1e-6)
    for mode in ("hard_hard", "soft_hard"):  # a hard projection predicts a cluster's distribution
        assert len(np.unique(arrays[f"{mode}_test"][0].round(6), axis=0)) <= 3


def test_item_labels_are_scored_without_their_annotators(crowds: Path) -> None:
    parts = load("jq1", find_datasets(crowds)["jq1"]).parts
    applied, hidden = split_halves(parts["dev"], 1)
    fmm = ds.FMM(3).fit(parts["train"])
    rows = dict(zip(applied.items.tolist(), fmm.apply(applied).label_distributions_, strict=True))
    items, labels = hidden.items[hidden.item].tolist(), hidden.label.tolist()
    expected = np.mean([np.log(rows[item][label]) for item, label in zip(items, labels, strict=True)])
    criterion = criterion_of(ITEM, parts["dev"], {})
    assert criterion(ds.FMM(3), parts["train"], 1) == pytest.approx(expected, rel=1e-9)


def test_votes_are_shares_of_the_annotators_most_likely_labels(crowds: Path) -> None:
    """Compare the score of the authors' code with a count of every stored annotator's prediction."""
    pytest.importorskip("torch")
    data = load("jq1", find_datasets(crowds)["jq1"])
    train, rng = data.parts["train"], np.random.default_rng(0)
    departure = DEPARTURES["ldlnm"]["votes"].settings
    model = ds.LDLNM(**{**ds.LDLNM.PAPER, **departure}, epochs=3, dev_size=0.0)
    features = rng.normal(size=(train.n_items, 4))
    model.fit(train, features)
    predicted = model.label_distributions(features[:2])
    annotators = np.flatnonzero(train.annotator_load)
    for item, row in enumerate(predicted):
        pairs = model.predict_proba(
            np.repeat(train.items[item], len(annotators)), train.annotators[annotators]
        )
        votes = np.bincount(pairs.argmax(axis=1), minlength=train.n_classes)
        np.testing.assert_allclose(row, votes / len(annotators), atol=1e-6)


def test_the_printed_acceptance_of_shares_ignores_their_members() -> None:
    """Check (1): with γ = 2, T = 1 and ψ = (½, ½), ψ' is accepted with probability 4 ψ'_1 ψ'_2."""
    rng, old = np.random.default_rng(0), np.array([0.5, 0.5])
    draws = np.array([propose_shares(old, 2.0, 1.0, rng) for _ in range(20_000)])
    # ψ'_1 ~ Beta(2, 2): E 4 ψ (1 − ψ) = 4 (1/2 − 3/10) = 4/5
    assert np.mean(draws[:, 0] != 0.5) == pytest.approx(0.8, abs=0.01)
    cold = np.array([propose_shares(old, 2.0, 1e-6, rng) for _ in range(1_000)])
    assert (cold == old).all()  # ψ = (½, ½) has the highest prior, and at T = 0 nothing else is accepted


def test_the_printed_annealer_keeps_the_best_state(crowds: Path) -> None:
    train = load("jq1", find_datasets(crowds)["jq1"]).parts["train"]
    departures = DEPARTURES["annealing"]
    settings = {**departures["start"].settings, **departures["cooling"].settings, "inference": "annealing"}
    model, again = (PrintedAnnealing(3, 2, **settings).fit(train) for _ in range(2))
    np.testing.assert_array_equal(model.theta_, again.theta_)
    w, z = model.item_clusters_.argmax(axis=1), model.annotator_clusters_.argmax(axis=1)
    state = Parameters(model.theta_, model.psi_, model.omega_)
    assert log_joint(train, state, w, z, Priors(2.0, 2.0, 2.0)) == pytest.approx(model.trace_.max())
    ours = ds.PGM(3, 2, inference="annealing", assignment="hard").fit(train)
    gold = train.counts / train.counts.sum(axis=1, keepdims=True)
    assert kl(gold, model.label_distributions_) > kl(gold, ours.label_distributions_)


def test_the_papers_repeats_are_rows_of_their_own(crowds: Path, tiny: Scale, tmp_path: Path) -> None:
    options = parser().parse_args(["--paper-repeats", "--quick"])
    assert (scale_of(options).paper_repeats, scale_of(options).as_printed) == (printed.REPEATS, False)
    data = load("jq1", find_datasets(crowds)["jq1"])
    scale = replace(tiny, as_printed=False, paper_repeats=7)
    plan = Plan(scale, {"jq1": data}, {"jq1": ("table3",)}, ("table3",), FinishedCells(tmp_path))
    cells = [cell for cell in plan.cells() if "-printed-" in cell.path]
    names = {cell.name for cell in cells}
    assert names == {f"{key}-printed-repeats" for key in ("pd", "fmm", "annealing", "bp")}
    assert len(cells) == 7 * len(names)
    assert len({cell.settings["seed"] for cell in cells}) == 7


@pytest.mark.data
def test_fmm_describes_the_labels_of_jq1(data_dir: Path) -> None:
    train = load("jq1", data_dir / "jq1").parts["train"]
    values = [measures.cluster_divergence(train, "fmm", {"n_item_clusters": 14}, seed) for seed in range(3)]
    assert np.mean(values) <= 0.18  # printed: 0.193


def test_an_interrupted_run_says_what_is_kept(
    crowds: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    def interrupted(directory: Path, **_: Any) -> None:
        if finished:
            (directory / "cells").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("reproduction.__main__.reproduce", interrupted)
    words = ["--data", str(crowds), "--sets", "tones", "--only", "table1", "-o", str(tmp_path / "out")]
    for finished, message in ((False, "nothing was written"), (True, "finished cells are in")):  # noqa: B007
        assert main(words) == 130
        assert message in capsys.readouterr().err


def test_tsne_keeps_planted_groups_apart() -> None:
    pytest.importorskip("openTSNE")
    from reproduction.tsne import project_2d

    rng, group = np.random.default_rng(0), np.arange(60) % 3
    points = project_2d(rng.normal(size=(60, 10)) + 12 * np.eye(10)[group], perplexity=10, n_iter=250)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert np.mean(group[distances.argmin(axis=1)] == group) > 0.98  # nearest neighbours share their group
    assert project_2d(np.eye(3)).shape == (3, 2)
