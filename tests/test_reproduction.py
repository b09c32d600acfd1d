"""The paper's evaluation, whole, on two small crowds with sentences written here."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DissensusError
from dissensus.evaluate.bootstrap import Interval
from dissensus.metrics import entropy, kl
from dissensus.text.learners.base import Learner
from reproduction import measures, printed
from reproduction.__main__ import main
from reproduction.answers import Contrast, answers_text, sentence
from reproduction.cells import Cell, FinishedCells
from reproduction.datasets import find_sets, load, read_dataset
from reproduction.findings import Findings, blend_weight
from reproduction.plan import PARTS, Plan, Scale
from reproduction.run import Reproduction, paper_encoder, reproduce, request

TOPICS = (("rain", "cold", "wet"), ("sun", "warm", "dry"), ("job", "desk", "late"))
WORDS = sorted({word for topic in TOPICS for word in topic} | {"the", "day", "is"})


def write_crowd(folder: Path, seed: int, *, text: bool, split: bool = False) -> None:
    """A simulated crowd; a sentence tells which class most annotators give."""
    known = ds.simulate(
        90, 14, 3, labels_per_item=14, n_item_clusters=3, n_annotator_clusters=2, alpha=0.4, seed=seed
    ).annotations
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    rows = zip(
        known.items[known.item], known.annotators[known.annotator], known.classes[known.label], strict=True
    )
    write_table(folder / "annotations.csv", ["item", "annotator", "label"], rows)
    top = known.counts.argmax(axis=1)
    write_table(folder / "gold.csv", ["item", "label"], zip(known.items, known.classes[top], strict=True))
    if text:
        texts = [" ".join(["the day is", *rng.choice(TOPICS[t], 3)]) for t in top]
        parts = [["train", "train", "dev", "test"][i % 4] for i in range(known.n_items)]
        columns = {"item": known.items, "text": texts} | ({"split": parts} if split else {})
        write_table(folder / "items.csv", list(columns), zip(*columns.values(), strict=True))


def write_table(path: Path, head: list[str], rows: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"), seed=0)


@pytest.fixture(scope="module")
def other_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Word vectors of the crowds' words."""
    file = tmp_path_factory.mktemp("words") / "glove.txt"
    rng = np.random.default_rng(0)
    lines = [" ".join([word, *map(str, rng.normal(size=4).round(3))]) for word in WORDS]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def write_encoder(folder: Path, seed: int) -> Path:
    """A sentence encoder of one small layer with random weights."""
    torch = pytest.importorskip("torch")
    st = pytest.importorskip("sentence_transformers")
    from transformers import BertConfig, BertModel, BertTokenizerFast

    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    torch.manual_seed(seed)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **size)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    st.SentenceTransformer(str(folder), device="cpu").save(str(folder / "st"), create_model_card=False)
    return folder / "st"


@pytest.fixture(scope="module")
def crowds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with jq1 (text and a split) and tones (neither)."""
    folder = tmp_path_factory.mktemp("data")
    write_crowd(folder / "jq1", 1, text=True, split=True)
    write_crowd(folder / "tones", 2, text=False)
    return folder


@pytest.fixture(scope="module")
def tiny(encoder: Path, other_encoder: Path, glove: Path) -> Scale:
    return Scale(
        name="tiny",
        repeats=2,
        own_repeats=2,
        item_clusters=(2, 3),
        annotator_clusters=(2,),
        fmm_clusters=(2, 3),
        search_repeats=1,
        finalists=1,
        sizes=(3,),
        seeds=2,
        hidden_splits=2,
        draws=2,
        labels_shown=(2,),
        recovery_fmm=(2,),
        recovery_pgm=((2, 2),),
        embedding=str(encoder),
        cnn={"epochs": 2, "dimension": 4, "filters": 4},
        encoder={"epochs": 1},
        ldlnm={"epochs": 3},
        n_boot=50,
        as_printed=True,
        printed_embedding=str(other_encoder),
        glove=str(glove),
        evaluations=3,
    )


@pytest.fixture(scope="module")
def output(
    crowds: Path, tiny: Scale, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Reproduction]]:
    """A finished run of everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISSENSUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        place = tmp_path_factory.mktemp("out") / "paper"
        yield (
            place,
            reproduce(place, data=crowds, sets=["jq1", "tones"], scale=tiny, n_jobs=1, progress=False),
        )


def rows_of(folder: Path) -> list[dict[str, str]]:
    """Every number of every table."""
    found = []
    for file in sorted(folder.glob("*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            found += list(csv.DictReader(lines))
    return found


def cells_of(folder: Path, row: dict[str, str]) -> list[dict[str, Any]]:
    """The files that a row names."""
    return [json.loads((folder / name).read_text(encoding="utf-8")) for name in row["cells"].split()]


# ---- a whole run --------------------------------------------------------------------------------------


@pytest.mark.slow
class TestWholeRun:
    def test_all_parts_are_on_the_page(self, output: tuple[Path, Reproduction]) -> None:
        text = (output[0] / "README.md").read_text(encoding="utf-8")
        for part in ("Table 1", "Table 2", "Table 3: KL", "Table 3: accuracy", "RQ1", "RQ2", "RQ3"):
            assert part in text
        for title in (
            "PD",
            "LDL-NM without annotators",
            "CBCC, soft, on embeddings",
            "LDL-NM, defaults, seeds averaged",
        ):
            assert re.search(rf"^\| {re.escape(title)} \|", text, re.MULTILINE)
        for figure in re.findall(r"\]\((\S+\.svg)\)", text):
            assert (output[0] / figure).read_text(encoding="utf-8").startswith("<svg")
        assert "tsne-jq1.svg" in text
        assert "recovery-tones.svg" in text

    def test_no_number_is_missing(self, output: tuple[Path, Reproduction]) -> None:
        text = (output[0] / "README.md").read_text(encoding="utf-8")
        assert not re.search(r"\bnan\b|\{\w+\}", text)
        assert {row["dataset"] for row in rows_of(output[0])} == {"jq1", "tones"}

    def test_table_3_is_the_mean_of_the_files_it_names(self, output: tuple[Path, Reproduction]) -> None:
        rows = [row for row in rows_of(output[0]) if row["table"] == "table3"]
        measured = [row for row in rows if "ensemble" not in row["column"] and row["column"] != "blend"]
        assert len(measured) > 40
        for row in measured:
            kept_as = {"inside": "inside", "plain": "without_dropout"}.get(
                row["column"].split("_")[-1], "runs"
            )
            runs = [run for cell in cells_of(output[0], row) for run in cell["numbers"][kept_as]]
            values = [run["test"][row["measure"]] for run in runs]
            assert len(values) == int(row["runs"])
            np.testing.assert_allclose(float(row["ours"]), np.mean(values), rtol=1e-5)
            if len(values) == 2:  # |a − b| / 2 is the standard error of two
                np.testing.assert_allclose(float(row["error"]), abs(values[0] - values[1]) / 2, atol=1e-6)

    def test_annotators_are_judged_with_dropout_off(
        self, output: tuple[Path, Reproduction], crowds: Path
    ) -> None:
        """RQ3: one network asked whole on either side, not means over many masks against one."""
        gold = load("jq1", find_sets(crowds)["jq1"]).gold["test"] + 1e-5
        sides = []
        for name in ("ldlnm", "ldlnm_alone"):
            with np.load(output[0] / "cells" / "jq1" / f"{name}-0.npz") as arrays:
                predicted = arrays["without_dropout_test"][0].astype(np.float64) + 1e-5
            sides.append((gold * np.log(gold / predicted)).sum(axis=1).mean())
        page = (output[0] / "README.md").read_text(encoding="utf-8")
        pair = "LDL-NM, dropout off | LDL-NM without annotators, dropout off"
        assert f"| test KL | {pair} | jq1 | {sides[0] - sides[1]:+.4f} |" in page
        assert "| test KL, compared as in the paper | LDL-NM | LDL-NM without annotators | jq1 |" in page
        assert "| test KL | LDL-NM, dropout off | PGM (bp), soft, on embeddings | jq1 |" in page

    def test_an_ensemble_is_the_mean_of_the_predictions_beside_the_files(
        self, output: tuple[Path, Reproduction]
    ) -> None:
        row = next(
            row
            for row in rows_of(output[0])
            if (row["column"], row["measure"]) == ("ldlnm_default_ensemble", "kl")
        )
        files = [(output[0] / name).with_suffix(".npz") for name in row["cells"].split()]
        assert len(files) == 2
        mean = np.mean([np.load(file)["test"][0] for file in files], axis=0, dtype=np.float64)
        gold = output[1].plan.datasets["jq1"].gold["test"]
        np.testing.assert_allclose(float(row["ours"]), kl(gold, mean), rtol=1e-5)

    def test_other_tables_are_in_the_files_they_name(self, output: tuple[Path, Reproduction]) -> None:
        for row in rows_of(output[0]):
            cells = cells_of(output[0], row)
            if row["table"] in ("table1", "gold"):
                value = cells[0]["numbers"][row["measure"]]
            elif row["table"] == "table2":
                value = np.mean(cells[0]["numbers"]["kl"])
            elif row["table"] == "hidden":
                value = np.mean(cells[0]["numbers"][row["measure"]])
            else:
                continue
            np.testing.assert_allclose(float(row["ours"]), value, rtol=1e-5)

    def test_as_printed_is_the_mean_of_the_files_it_names(self, output: tuple[Path, Reproduction]) -> None:
        rows = [row for row in rows_of(output[0]) if row["table"] == "as_printed"]
        for row in rows:
            numbers = [cell["numbers"] for cell in cells_of(output[0], row)]
            if row["measure"] == "kl":
                values = [run["test"]["kl"] for one in numbers for run in one["runs"]]
            else:
                values = numbers[0]["kl"]
            assert len(values) == int(row["runs"])
            np.testing.assert_allclose(float(row["ours"]), np.mean(values), rtol=1e-5)
        own = ["fmm, everything", "bp, everything", "annealing, start", "annealing, cooling"]
        found = {row["column"] for row in rows}
        assert {*own, "pd, everything", "bp, sizes", "bp, glove", "ldlnm, epoch", "ldlnm, encoder"} <= found
        page = (output[0] / "README.md").read_text(encoding="utf-8").partition("## As printed\n")[2]
        for row in rows:
            assert f"**{float(row['ours']):.3f}**" in page
        assert "| *printed* | 0.408 ± 0.004 |" in page  # LDL-NM on jq1
        assert "| *printed* | 0.523 |" in page  # the KL of PGM's clusters there

    def test_everything_as_printed_is_in_one_cell(
        self, output: tuple[Path, Reproduction], glove: Path
    ) -> None:
        def settings(name: str) -> Any:
            path = output[0] / f"cells/jq1/{name}-0.json"
            return json.loads(path.read_text(encoding="utf-8"))["cell"]["settings"]

        bp = settings("bp-printed-everything")
        assert bp["sizes"] == {
            "n_item_clusters": 10,
            "n_annotator_clusters": 12,
            "start": "random",
            "bp_rounds": 10,
        }
        assert bp["learner"]["glove"] == hashlib.sha256(glove.read_bytes()).hexdigest()
        assert str(glove) not in (output[0] / "cells.jsonl").read_text(encoding="utf-8")
        annealed = settings("annealing-printed-everything")["sizes"]
        assert (annealed["temperature"], annealed["cooling"], annealed["ascent"]) == (1.0, 1.0, False)
        assert (annealed["n_item_clusters"], annealed["start"]) == (4, "random")
        network = settings("ldlnm-printed-everything")
        ours, alone = settings("ldlnm"), settings("ldlnm-printed-epoch")
        assert network["evaluations"] == 3
        assert network["network"] == {**ours["network"], "dev_size": 0.0, "rescale": False}
        assert network["features"] != ours["features"] == alone["features"]

    def test_the_last_epoch_is_kept_as_printed(self, output: tuple[Path, Reproduction]) -> None:
        def epoch(name: str) -> int:
            cell = json.loads((output[0] / f"cells/jq1/{name}-0.json").read_text(encoding="utf-8"))
            return int(cell["numbers"]["epoch"])

        assert epoch("ldlnm-printed-epoch") == epoch("ldlnm-printed-everything") == -1  # none was chosen
        assert epoch("ldlnm") >= 0

    def test_a_cell_says_what_made_it(self, output: tuple[Path, Reproduction]) -> None:
        content = json.loads((output[0] / "cells/jq1/fmm-1.json").read_text(encoding="utf-8"))
        settings = content["cell"]["settings"]
        assert settings["seed"] == 1
        assert settings["sizes"]["n_item_clusters"] in (2, 3)
        assert settings["learner"] == {"epochs": 2, "dimension": 4, "filters": 4}
        assert {"dissensus", "numpy", "torch"} <= set(content["versions"])
        assert content["cpu_seconds"] > 0

    def test_finished_cells_are_left_alone(
        self, output: tuple[Path, Reproduction], crowds: Path, tiny: Scale
    ) -> None:
        folder = output[0]
        before = {file: file.stat().st_mtime_ns for file in folder.glob("cells/**/*.json")}
        (folder / "cells/jq1/softmax-0.json").unlink()
        (folder / "cells/tones/cbcc-gold-0.json").write_text("{", encoding="utf-8")
        again = reproduce(folder, data=crowds, sets=["jq1", "tones"], scale=tiny, n_jobs=1, progress=False)
        assert (again.work.measured, again.work.found) == (2, len(before) - 2)
        after = {file: file.stat().st_mtime_ns for file in folder.glob("cells/**/*.json")}
        assert {file.name for file in before if before[file] != after[file]} == {
            "softmax-0.json",
            "cbcc-gold-0.json",
        }

    def test_other_settings_are_measured_anew(
        self, output: tuple[Path, Reproduction], crowds: Path, tiny: Scale
    ) -> None:
        other = replace(tiny, hidden_splits=1)
        again = reproduce(
            output[0], data=crowds, sets=["tones"], only=["hidden"], scale=other, n_jobs=1, progress=False
        )
        assert (again.work.measured, again.work.found) == (7, 5)  # seven models; five searches stay


@pytest.mark.slow
def test_the_command_line(crowds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data", str(crowds), "--sets", "tones", "--only", "table1", "-o", str(tmp_path)]
    for line in ("1 cells measured", "0 cells measured"):
        assert main(words) == 0
        assert line in capsys.readouterr().out
    assert "| tones | 90 | 14 | 14.00 | 3 |" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_authors_files_are_read(tmp_path: Path) -> None:
    columns = ["message_id", "worker_id", "label", "message", "platform", "label_vector"]
    for number, part in enumerate(("train", "dev", "test")):
        data = [
            [100 + number, "a", "yes", f"text {number}", "mt", 1],
            [100 + number, "b", "no", f"text {number}", "mt", 0],
        ]
        place = tmp_path / "jobs" / "jobsQ1" / "splits"
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"jobQ1_BOTH_{part}.json"
        file.write_text(json.dumps({"columns": columns, "index": [0, 1], "data": data}), encoding="utf-8")
    found = find_sets(tmp_path)
    assert list(found) == ["jq1"]
    data = load("jq1", found["jq1"])
    assert not data.seeded
    assert {name: part.items.tolist() for name, part in data.parts.items()} == {
        "train": ["100"],
        "dev": ["101"],
        "test": ["102"],
    }
    assert data.texts("dev") == ["text 1"]
    np.testing.assert_allclose(data.gold["test"], [[0.5, 0.5]], rtol=1e-12)


# ---- what is asked for --------------------------------------------------------------------------------


def test_a_dataset_whose_labels_are_not_there_is_told_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(DissensusError, match=r"jq9/annotations\.csv: no such file"):
        read_dataset(tmp_path / "jq9")


def test_a_split_of_ours_is_half_and_two_quarters(crowds: Path) -> None:
    data = load("tones", find_sets(crowds)["tones"])
    assert data.seeded
    sizes = [len(data.parts[part].items) for part in ("train", "dev", "test")]
    assert sum(sizes) == 90
    assert sizes[0] == 45
    items = {item for part in data.parts.values() for item in part.items.tolist()}
    assert len(items) == 90


def test_more_items_than_allowed_are_sampled(crowds: Path) -> None:
    data = load("jq1", find_sets(crowds)["jq1"], max_items=40)
    assert data.annotations.n_items == 40


@pytest.mark.parametrize(
    ("sets", "only", "words"),
    [
        (["jq11"], [], "has no dataset 'jq11'; did you mean 'jq1'?"),
        (["zzz"], [], "has no dataset 'zzz'; it has jq1, tones"),
        ([], ["table4"], "must be among table1"),
    ],
)
def test_what_is_unknown_is_refused(crowds: Path, sets: list[str], only: list[str], words: str) -> None:
    with pytest.raises(DissensusError, match=re.escape(words)):
        request(crowds, sets, only)


def test_a_place_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DissensusError, match="there is no such data folder"):
        request(tmp_path / "nowhere")
    with pytest.raises(DissensusError, match="holds neither folders with annotations"):
        request(tmp_path)


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a failing run leaves on standard error."""
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


def test_bad_input_is_one_line_and_writes_nothing(
    crowds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "out"
    line = failure(capsys, "--data", str(crowds), "--sets", "jq11", "-o", str(place))
    assert line.endswith("has no dataset 'jq11'; did you mean 'jq1'?")
    assert not place.exists()


def test_ctrl_c_says_what_is_kept(
    crowds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out"
    words = ["--data", str(crowds), "--sets", "tones", "--only", "table1", "-o", str(place)]

    def interrupted(directory: Path, **_: Any) -> None:
        if finished:
            (directory / "cells").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("reproduction.__main__.reproduce", interrupted)
    for one in (False, True):
        finished = one
        assert main(words) == 130
        kept = "out/cells keeps what is finished" if finished else "nothing was written"
        assert kept in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--glove", "here.txt"], "--glove has an effect with --as-printed alone; add it"),
        (["--as-printed", "--glove", "nowhere.txt"], "nowhere.txt: there is no such file of word vectors"),
    ],
)
def test_word_vectors_that_cannot_serve(
    crowds: Path, tmp_path: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "out"
    assert words in failure(capsys, "--data", str(crowds), "--sets", "tones", *options, "-o", str(place))
    assert not place.exists()


def test_the_papers_encoder_is_left_out_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    from dissensus.text import embedding

    asked = []

    def unreachable(name: str) -> None:
        asked.append(name)
        raise DissensusError("the hub does not answer")

    monkeypatch.setattr(embedding, "load_encoder", unreachable)
    assert paper_encoder() is None
    assert asked == ["paraphrase-MiniLM-L6-v2"]
    monkeypatch.setattr(embedding, "load_encoder", lambda name: None)
    assert paper_encoder() == "paraphrase-MiniLM-L6-v2"


@pytest.mark.verify
def test_as_printed_from_the_command_line(crowds: Path, tmp_path: Path) -> None:
    words = ["--data", str(crowds), "--sets", "jq1", "--only", "table2", "--quick"]
    assert main([*words, "--as-printed", "-o", str(tmp_path)]) == 0
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Written by `python -m reproduction --sets jq1 --only table2 --quick --as-printed`" in page
    assert "## As printed: clusters" in page
    assert "## As printed\n" not in page  # nothing was trained
    assert (tmp_path / "cells/jq1/bp-clusters-printed-rounds-0.json").exists()


def test_the_usual_sets_that_are_there(crowds: Path) -> None:
    asked = request(crowds, only=["table1"])
    assert list(asked.files) == ["jq1"]
    assert "weather_sentiment_amt" in asked.absent


# ---- answers ------------------------------------------------------------------------------------------


def contrast(value: float, low: float, high: float, dataset: str = "jq1") -> Contrast:
    return Contrast("RQ1", "test KL", "PGM (bp)", "FMM", dataset, Interval(value, low, high))


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((-0.02, -0.03, -0.01), "better"),
        ((0.02, 0.01, 0.03), "worse"),
        ((-0.02, -0.05, 0.01), "tie"),
        ((0.02, 0.0, 0.04), "tie"),  # zero itself is inside
        ((0.0, 0.0, 0.0), "tie"),
    ],
)
def test_a_difference_inside_its_interval_is_a_tie(ends: tuple[float, float, float], verdict: str) -> None:
    assert contrast(*ends).verdict == verdict


def test_columns_of_one_kind_are_compared_over_the_seeds_that_both_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = [[1.0, 2.0], [3.0, 4.0], [50.0, 60.0]]
    runs = {"bp": three, "fmm": [[0.0, 1.0], [1.0, 1.0]], "ldlnm": [[0.0, 1.0]]}
    monkeypatch.setattr(Findings, "_kl_of_runs", lambda self, name, key: np.array(runs[key]))
    findings = Findings(None)  # type: ignore[arg-type]
    assert findings.difference("jq1", "bp", "fmm").tolist() == [2.0 - 0.5, 3.0 - 1.0]
    assert findings.difference("jq1", "bp", "ldlnm").tolist() == [18.0 - 0.0, 22.0 - 1.0]


def test_a_pair_on_several_datasets_is_one_sentence() -> None:
    some = [contrast(-0.2, -0.3, -0.1), contrast(0.0, -0.1, 0.1, "jq2"), contrast(-0.2, -0.3, -0.1, "jq3")]
    assert sentence(some) == "test KL: PGM (bp) against FMM is better on jq1, jq3; a tie on jq2."
    text = answers_text(some)
    assert "of 3 comparisons the first model is better in 2, tied in 1 and worse in 0." in text
    assert "RQ2" not in text


def test_two_predictions_are_blended_where_dev_is_best() -> None:
    gold = np.array([[0.7, 0.3]])
    # w (1, 0) + (1 − w) (0, 1) meets gold at w = 0.7
    np.testing.assert_allclose(
        blend_weight(gold, np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])), 0.7, rtol=1e-12
    )


# ---- what the paper prints ----------------------------------------------------------------------------


@pytest.mark.data
def test_printed_figures_agree_with_the_papers_source(data_dir: Path) -> None:
    """Every figure of Tables 2 and 3, row by row, read out of the LaTeX of the tables."""
    sources = sorted((data_dir.parent / "seed").glob("*.txt"))
    if not sources:
        pytest.skip("the paper's source is not beside the data")
    text = sources[0].read_text(encoding="utf-8")
    main = text[text.index("\\label{tab:main_results}") :]
    columns = ("pd", "fmm", "annealing", "bp", "ldlnm")
    for name in printed.PAPER_SETS:
        kl_row, accuracy_row = re.findall(rf"{name.upper()} &(.*?)\\\\", main)
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
        found = [printed.TABLE_2[key][name] for key in ("fmm", "annealing", "bp")]
        assert [one.kl for one in found] == [float(value) for value in kls]
        assert [one.item_clusters for one in found] == [int(value) for value in Ks]
        assert [one.annotator_clusters for one in found] == [None, *map(int, Ls)]


@pytest.mark.data
def test_the_paper_is_about_these_data(data_dir: Path) -> None:
    """Table 1 to its last digit but one, and the constant that equals the printed FMM column."""
    for name, summary in printed.TABLE_1.items():
        data = load(name, data_dir / name)
        counts = data.annotations.counts
        assert (data.annotations.n_items, data.annotations.n_annotators) == summary[:2]
        assert abs(entropy(counts / counts.sum(axis=1, keepdims=True)) - summary.entropy) < 0.001
        constant = np.tile(data.gold["train"].mean(axis=0), (500, 1))
        assert abs(kl(data.gold["test"], constant) - printed.KL["fmm"][name].value) < 0.005


# ---- one cell, worked anew ------------------------------------------------------------------------------


class Topics(Learner):
    """A learner that says of a text how many words of each topic it has, and one of each more."""

    def _inputs(self, X: Any) -> list[str]:
        return list(X)

    def _fit(self, X: Any, targets: Any, dev: Any) -> None:
        pass

    def _predict(self, X: list[str]) -> Any:
        counts = np.array([[1 + sum(word in text for word in topic) for topic in TOPICS] for text in X])
        return counts / counts.sum(axis=1, keepdims=True)


def test_a_guided_cell_is_the_papers_workflow(crowds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Annotator clusters count by Ω, the sum over them stands outside, S = 1, and everything is snapped."""
    monkeypatch.setattr(measures, "learner_of", lambda *_: Topics())
    data = load("jq1", find_sets(crowds)["jq1"])
    sizes = {"n_item_clusters": 6, "n_annotator_clusters": 3}
    settings = {"guide": "bp", "sizes": sizes, "learner": {}, "seed": 0}
    inputs = measures.Inputs({"jq1": data}, FinishedCells(crowds))
    numbers, arrays = measures.guided(inputs, Cell("jq1", "guided", "bp", 0, settings))
    pgm = ds.PGM(6, 3).fit(data.parts["train"])
    theta, psi, omega = pgm.theta_, pgm.psi_, pgm.omega_
    h = Topics()._predict(data.texts("test"))

    def projected(population: Any, outside: bool) -> Any:
        """Y' of arg max_k ψ_k Σ_l Ω_l Π_p Θ_klp^{h_p}, or of arg max_k ψ_k Π_p Y'_kp^{h_p}."""
        each = np.exp(np.einsum("np,klp->nkl", h, np.log(theta))) @ omega
        chances = psi * (each if outside else np.exp(h @ np.log(population).T))
        return population[chances.argmax(axis=1)]

    by_omega = np.einsum("l,klp->kp", omega, theta)
    by_load = np.einsum("l,klp->kp", pgm.population_weights_, theta)
    np.testing.assert_allclose(arrays["test"][0], projected(by_omega, outside=True), rtol=1e-5)
    refined = by_omega[pgm.item_clusters_.argmax(axis=1)]
    assert numbers["refined_kl"] == pytest.approx(kl(data.gold["train"], refined), rel=1e-9)
    # The test would notice the other sum, and the other weights.
    assert np.abs(projected(by_omega, outside=False) - projected(by_omega, outside=True)).max() > 0.01
    assert np.abs(by_load - by_omega).max() > 0.01


def test_clusters_of_table_2_count_annotators_alike(crowds: Path) -> None:
    """KL(empirical ‖ Σ_l Ω_l Θ_kl of the most likely cluster), 1e-5 on both sides."""
    train = load("jq1", find_sets(crowds)["jq1"]).parts["train"]
    pgm = ds.PGM(3, 2).fit(train)
    own = np.einsum("l,klp->kp", pgm.omega_, pgm.theta_)[pgm.item_clusters_.argmax(axis=1)] + 1e-5
    gold = train.counts / train.counts.sum(axis=1, keepdims=True) + 1e-5
    expected = (gold * np.log(gold / own)).sum(axis=1).mean()
    sizes = {"n_item_clusters": 3, "n_annotator_clusters": 2}
    assert measures.cluster_divergence(train, "bp", sizes, 0) == pytest.approx(expected, rel=1e-9)


# ---- the identity of a cell -----------------------------------------------------------------------------


def test_whatever_decides_a_cell_is_in_its_identity(crowds: Path, tiny: Scale, tmp_path: Path) -> None:
    """Each ingredient changed in turn gives the cells that depend on it another identity."""
    data = load("jq1", find_sets(crowds)["jq1"])
    data = replace(data, features_fingerprint="the embeddings")
    parts = {"jq1": ("table1", "table2", "table3", "hidden", "recover", "gold")}

    def identities(data: Any = data, scale: Scale = tiny) -> dict[str, str]:
        plan = Plan(scale, {"jq1": data}, parts, tuple(PARTS), FinishedCells(tmp_path))
        return {cell.path: json.dumps(cell.identity, sort_keys=True) for cell in plan.cells()}

    before = identities()

    def changed(**given: Any) -> set[str]:
        after = identities(**given)
        return {path for path in before if after.get(path) != before[path]}

    def cells(*words: str) -> set[str]:
        return {path for path in before if any(f"/{word}-0." in path for word in words)}

    assert changed(data=replace(data, fingerprint="other labels")) == set(before)
    assert changed(data=replace(data, seeded=True)) == set(before)
    on_features = cells("softmax", "guided", "fmm_soft", "bp_soft", "ldlnm", "ldlnm_alone", "ldlnm_default")
    of_others = changed(data=replace(data, features_fingerprint="of another encoder"))
    assert on_features <= of_others
    assert not of_others & cells("pd", "fmm", "bp", "describe", "bp-search", "bp-hidden", "recovery")
    searches = cells("bp-search", "vb-search", "annealing-search")
    decided: dict[str, tuple[Any, set[str]]] = {
        "cnn": ({"epochs": 3}, cells("pd", "fmm", "bp")),
        "ldlnm": ({"epochs": 4}, cells("ldlnm", "ldlnm-search", "ldlnm_default")),
        "encoder": ({"epochs": 2}, cells("encoder")),
        "embedding": ("another", cells("encoder")),
        "repeats": (3, cells("ldlnm", "ldlnm_alone")),
        "item_clusters": ((2, 4), searches),
        "annotator_clusters": ((3,), searches),
        "fmm_clusters": ((2, 4), cells("fmm-search")),
        "communities": ((4,), cells("cbcc-search")),
        "search_repeats": (2, searches | cells("fmm-search", "ldlnm-search")),
        "finalists": (2, searches | cells("fmm-search", "ldlnm-search")),
        "search_patience": (7, cells("ldlnm-search")),
        "sizes": ((4,), cells("ldlnm-search", "ldlnm_alone-search")),
        "seeds": (3, cells("bp-clusters", "fmm-clusters-paper", "bp-clusters-printed-rounds")),
        "hidden_splits": (3, cells("bp-hidden", "counts-hidden")),
        "draws": (3, cells("recovery")),
        "labels_shown": ((3,), cells("recovery")),
        "recovery_fmm": ((3,), cells("recovery")),
        "recovery_pgm": (((3, 2),), cells("recovery")),
        "evaluations": (4, cells("ldlnm-printed-everything")),
    }
    # The others: more cells of the same kind, the labels themselves, or what is made of finished cells.
    elsewhere = {"name", "own_repeats", "as_printed", "max_items", "n_boot", "glove", "printed_embedding"}
    assert {field.name for field in fields(Scale)} == elsewhere | set(decided)
    for ingredient, (value, own) in decided.items():
        assert own, ingredient
        assert own <= changed(scale=replace(tiny, **{ingredient: value})), ingredient
    printed = changed(data=replace(data, as_printed=replace(data, features_fingerprint="the paper's")))
    assert cells("ldlnm-printed-encoder") == set() != printed  # it is known with the paper's encoder alone
    assert printed <= {path for path in before if "/ldlnm-printed-" in path}
    (tmp_path / "other.txt").write_text("the 1 2 3 4\n")
    of_others = changed(scale=replace(tiny, glove=str(tmp_path / "other.txt")))
    with_vectors = cells("pd-printed-everything", "fmm-printed-glove", "bp-printed-everything")
    assert len(with_vectors) == 3
    assert with_vectors <= of_others
    assert not of_others & cells("pd", "fmm", "fmm-printed-start", "ldlnm-printed-everything")
    assert cells("ldlnm-printed-everything") <= changed(scale=replace(tiny, evaluations=4))


def test_embeddings_are_in_the_datasets_fingerprint(crowds: Path, encoder: Path, monkeypatch: Any) -> None:
    files = find_sets(crowds)["jq1"]
    embedded = load("jq1", files, embedded=True, embedding=str(encoder))
    assert load("jq1", files).features_fingerprint == ""
    from dissensus.text import embedding

    monkeypatch.setattr(embedding, "embed", lambda texts, **_: np.ones((len(texts), 3), np.float32))
    other = load("jq1", files, embedded=True, embedding=str(encoder))
    assert embedded.fingerprint == other.fingerprint
    assert embedded.features_fingerprint != other.features_fingerprint
