"""The command line, as a person would use it."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dissensus
from cli_help import COMMANDS, failure, run, tree, write_votes
from dissensus._version import __version__
from dissensus.cli.app import shell_spelling
from dissensus.cli.options import parse_value, parse_values
from dissensus.cli.terminal import amounts
from dissensus.models import MODELS
from registry import OF_CLASSES


@pytest.fixture(scope="module", autouse=True)
def _without_pandas() -> Iterator[None]:
    """No command needs pandas, which is an extra: here it cannot be imported."""
    pa.array(["looks for pandas once"])  # and trips over a module that is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        yield


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated crowd on disk."""
    place = tmp_path_factory.mktemp("data") / "crowd"
    run("simulate", "--n-items", 80, "--n-annotators", 20, "-k", 3, "-l", 2, "--seed", 4, "-o", place)
    return place


@pytest.fixture(scope="module")
def refined(crowd: Path) -> tuple[Path, Any]:
    """The crowd refined by the model chosen for it: the directory, and what was printed as JSON."""
    place = crowd.parent / "refined"
    return place, json.loads(run("fit", crowd / "annotations.csv", "-o", place, "--json").stdout)


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


FMM = ["--model", "fmm", "-k", 3, "--test-size", 0, "--no-report"]  # a fit that takes no time


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_language_models_among_people_are_named(tmp_path: Path) -> None:
    rows = "".join(f"i{m},{who},{'xy'[m % 2]}\n" for m in range(6) for who in ("ann", "bob", "gpt-4o"))
    votes = write_votes(tmp_path / "votes.csv", rows)
    told = run("fit", votes, *FMM).stderr
    assert "1 language model by name (gpt-4o, for one) among the annotators" in told
    assert f"dissensus judges {votes}" in " ".join(told.split())
    assert "gpt-4o" not in run("fit", votes, *FMM, "--anonymise", "-o", "hidden").stderr


# ---- the front door -----------------------------------------------------------------------------------


def test_alone_it_greets_and_names_three_commands() -> None:
    text = run().stdout
    assert all(f"dissensus {command}" in text for command in ("demo", "describe", "fit"))


def test_version() -> None:
    assert run("--version").stdout == f"dissensus {__version__}\n"


def test_a_mistyped_command_suggests_the_near_one() -> None:
    assert "'fit'" in failure("fitt", "votes.csv")


def test_a_mistyped_option_suggests_the_near_one() -> None:
    assert "--item-column" in failure("fit", "votes.csv", "--item-colum", "x")


def test_a_missing_argument_points_to_the_help() -> None:
    assert failure("fit").endswith("see: dissensus fit --help")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("test_size", 0, "--test-size 0"),
        ("memory", None, "--memory"),
        ("item", "my id", "--item-column 'my id'"),
        ("force", True, "--force"),
        ("classes", ["a", "b"], "--classes a,b"),
        ("separator", ";", "dissensus import votes.csv --separator ';' -o labels.csv"),
        ("alpha", 2, "alpha=2"),
    ],
)
def test_a_setting_in_a_message_is_what_can_be_typed(name: str, value: Any, shown: str) -> None:
    write_votes(Path("votes.csv"), "i,a,x\n")
    assert shell_spelling(COMMANDS["fit"], ["fit", "votes.csv"])(name, value) == shown


def test_no_message_of_the_library_names_an_option_of_the_shell() -> None:
    rooms = Path(dissensus.__file__).parent
    named = {
        f"{file.relative_to(rooms)}: {line.strip()}"
        for file in rooms.rglob("*.py")
        if "cli" not in file.parts and file.name != "label_studio.py"  # a program of its own
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"""["'( ]--[a-z{]""", line) and not line.lstrip().startswith("#")
    }
    assert named == set()


def test_an_unexpected_error_is_one_line_that_says_how_to_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.labels.description.describe", lambda _: 1 / 0)
    votes = write_votes(Path("votes.csv"), "i,a,x\n")
    line = failure("describe", votes, code=1)
    assert "ZeroDivisionError" in line
    assert line.endswith("dissensus --debug describe votes.csv")
    debugged = run("describe", votes, "--debug", code=1).stderr
    assert "Traceback (most recent call last)" in debugged


def test_ctrl_c_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dissensus.labels.description.describe", interrupted)
    assert "interrupted" in failure("describe", write_votes(Path("votes.csv"), "i,a,x\n"), code=130)


def test_control_characters_in_the_data_do_not_reach_the_terminal() -> None:
    votes = write_votes(Path("votes.csv"), "i,a,\x1b[31mred\nj,a,x\n")
    assert "\x1b" not in run("describe", votes).stdout
    assert "\x1b" not in failure("fit", votes, "--classes", "x,y")


def test_simulate_keeps_the_pairs_of_a_file_and_takes_several_parameters(crowd: Path) -> None:
    words = ["--n-classes", 3, "--alpha", "0.5,1,2", "-k", 2, "-l", 2, "-o", "redrawn"]
    run("simulate", "--pairs", crowd / "annotations.csv", *words)
    first, second = read_csv(crowd / "annotations.csv"), read_csv(Path("redrawn/annotations.csv"))
    assert [(row["item"], row["annotator"]) for row in first] == [
        (row["item"], row["annotator"]) for row in second
    ]
    assert {row["label"] for row in second} <= {"c1", "c2", "c3"}
    settings = json.loads(Path("redrawn/summary.json").read_text())["settings"]
    assert (settings["alpha"], settings["pairs"]) == ([0.5, 1.0, 2.0], str(crowd / "annotations.csv"))
    assert failure("simulate", "--alpha", "1,x", "-o", "no").startswith("--alpha must be")


# ---- fit ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fit_writes_labels_annotators_model_and_summary(refined: tuple[Path, Any]) -> None:
    place, printed = refined
    models = {"model.safetensors", "draws.safetensors"}
    files = {"annotations.parquet", "labels.csv", "annotators.csv", "report.html", "summary.json"}
    assert set(tree(place)) == files | models
    assert printed == json.loads((place / "summary.json").read_text())
    labels = read_csv(place / "labels.csv")
    classes = ["c1", "c2", "c3", "c4"]
    columns = [f"{what}_{name}" for what in ("p", "low", "high") for name in classes]
    assert list(labels[0]) == ["item", "label", *columns, "sure", "worth", "entropy", "n_labels"]
    assert len(labels) == 80
    for row in labels:
        chances = np.array([float(row[f"p_{name}"]) for name in classes])
        assert chances.sum() == pytest.approx(1, rel=1e-5)
        assert float(row["entropy"]) == pytest.approx(-(chances * np.log(chances)).sum(), rel=1e-4)
        assert row["n_labels"] == "5"
    annotators = read_csv(place / "annotators.csv")
    assert sum(int(row["n_labels"]) for row in annotators) == 400


@pytest.mark.slow
def test_the_saved_model_is_the_one_behind_the_labels(refined: tuple[Path, Any]) -> None:
    model = dissensus.load(refined[0] / "model.safetensors")
    written = [row["label"] for row in read_csv(refined[0] / "labels.csv")]
    assert list(model.predict()) == written


@pytest.mark.slow
def test_auto_says_which_candidates_it_compared(refined: tuple[Path, Any]) -> None:
    summary = refined[1]
    scores = [-math.inf if row["score"] is None else row["score"] for row in summary["held_out"]]
    assert len(scores) > 3
    assert summary["model"] in {row["model"] for row in summary["held_out"]}
    assert summary["reason"].startswith(summary["model"])
    assert summary["estimate"] == "population"


def test_agreement_with_the_others_by_hand() -> None:
    # a: on i the other says x (agrees), on j the other says x, a said y. b likewise. c is alone on k.
    write_votes(Path("votes.csv"), "i,a,x\ni,b,x\nj,a,y\nj,b,x\nk,c,x\n")
    run("fit", "votes.csv", "-m", "majority", "--test-size", 0, "--no-report")
    rows = read_csv(Path("votes-refined/annotators.csv"))
    assert [row["agreement"] for row in rows] == ["0.5", "0.5", ""]


def test_the_summary_says_what_was_done(crowd: Path) -> None:
    file = crowd / "annotations.csv"
    run("fit", file, "-o", "refined", "--model", "fmm", "-k", 3, "--set", "alpha=1.5", "--seed", 9)
    summary = json.loads(Path("refined/summary.json").read_text())
    assert summary["command"].startswith(f"dissensus fit {file} -o refined")
    assert summary["settings"]["n_item_clusters"] == 3
    assert summary["settings"]["alpha"] == 1.5
    assert summary["seed"] == summary["settings"]["seed"] == 9
    assert summary["data"]["n_labels"] == 400
    assert [row["model"] for row in summary["held_out"]] == ["fmm", "empirical"]
    assert all(math.isfinite(row["score"]) for row in summary["held_out"])
    assert summary["versions"]["dissensus"] == __version__
    assert set(summary["seconds"]) == {"compare", "fit", "write", "report"}


def test_the_same_seed_gives_the_same_labels(crowd: Path) -> None:
    for place in ("one", "two"):
        run("fit", crowd / "annotations.csv", "-o", place, *FMM, "--seed", 3)
    assert Path("one/labels.csv").read_bytes() == Path("two/labels.csv").read_bytes()


@pytest.mark.parametrize("model", OF_CLASSES)
def test_every_model_runs(crowd: Path, model: str) -> None:
    np.save("features.npy", np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32))
    words = ["--model", model, "-o", model, "--test-size", 0, "--features", "features.npy", "--no-report"]
    quick = {
        "ldlnm": ["--set", "epochs=2"],
        "hpgm": ["--set", "n_sweeps=20"],
        "latent": ["--set", "n_sweeps=20"],
    }
    words += quick.get(model, [])
    run("fit", crowd / "annotations.csv", *words)
    assert json.loads(Path(model, "summary.json").read_text())["model"] == model


def test_the_output_is_named_after_the_file(crowd: Path) -> None:
    Path("votes.v2.csv").write_bytes((crowd / "annotations.csv").read_bytes())
    run("fit", "votes.v2.csv", *FMM)
    assert Path("votes.v2-refined/labels.csv").is_file()


def test_class_counts_have_no_annotators_to_write() -> None:
    Path("counts.csv").write_text("item,yes,no\ni,3,1\nj,0,4\nk,2,2\n")
    run("fit", "counts.csv", "--label-column", "yes", "--label-column", "no", "--no-report")
    assert not Path("counts-refined/annotators.csv").exists()
    assert [row["n_labels"] for row in read_csv(Path("counts-refined/labels.csv"))] == ["4", "4", "4"]


def test_gold_labels_are_held_against_the_result() -> None:
    write_votes(Path("votes.csv"), "i,a,x\ni,b,x\nj,a,y\nj,b,y\n")
    Path("gold.csv").write_text("item,label\ni,x\nj,x\n")
    result = run("fit", "votes.csv", "--gold", "gold.csv", "-m", "majority", "--test-size", 0, "--no-report")
    assert (
        "Gold labels: 50.0% right; they trained nothing (--estimate truth learns from them)" in result.stdout
    )


def test_the_label_order_is_given_with_commas_or_one_by_one() -> None:
    write_votes(Path("votes.csv"), "i,a,low\nj,a,high\n")
    for place, option in {
        "a": ["--classes", "high,mid,low"],
        "b": ["--classes", "high", "--classes", "low"],
    }.items():
        run("fit", "votes.csv", "-o", place, "-m", "majority", "--test-size", 0, "--no-report", *option)
    columns = [
        [name for name in read_csv(Path(place, "labels.csv"))[0] if name[:2] == "p_"] for place in "ab"
    ]
    assert columns == [["p_high", "p_mid", "p_low"], ["p_high", "p_low"]]


# ---- what is refused, and leaves everything as it was --------------------------------------------------


BAD = {
    "a missing file": (["fit", "vote.csv"], r"did you mean 'votes.csv'?"),
    "a directory": (["fit", "."], "directory"),
    "a mistyped column": (["fit", "votes.csv", "--item-column", "itm"], "did you mean 'item'?"),
    "a mistyped model": (["fit", "votes.csv", "--model", "fm"], "did you mean 'fmm'?"),
    "a mistyped setting": (["fit", "votes.csv", "-m", "fmm", "--set", "alfa=2"], "did you mean 'alpha'?"),
    "a setting outside its rule": (["fit", "votes.csv", "-m", "fmm", "-k", "0"], "must be an int >= 1"),
    "a setting the model lacks": (["fit", "votes.csv", "-m", "majority", "-k", "3"], "has no setting"),
    "a setting for no model": (
        ["fit", "votes.csv", "-k", "3"],
        "name the model that should take it, as in --model pgm",
    ),
    "a setting without a value": (["fit", "votes.csv", "-m", "fmm", "--set", "alpha"], "name=value"),
    "no number": (["fit", "votes.csv", "-m", "fmm", "-k", "three"], "--item-clusters"),
    "a policy that is none": (["import", "votes.csv", "--duplicates", "kep", "-o", "l.csv"], "'keep'"),
    "a reading option": (["fit", "votes.csv", "--separator", ";"], "an option of dissensus import"),
    "an option twice": (["fit", "votes.csv", "--item-column", "a", "--item-column", "b"], "given 2 times"),
    "a label outside the set": (["fit", "votes.csv", "--classes", "x,z"], "'y' is not in the label set"),
    "a share beyond one": (["fit", "votes.csv", "--test-size", "1.5"], "--test-size must be a float >= 0"),
    "somebody's directory": (
        ["fit", "votes.csv", "-o", "thesis"],
        "not written by dissensus; choose another place, or give --force",
    ),
    "a file to write into": (["fit", "votes.csv", "-o", "votes.csv"], "is a file"),
    "features of other items": (["fit", "votes.csv", "--features", "f.npy"], "f.npy"),
    "text that is not there": (["fit", "votes.csv", "--text-column", "txt"], "there is no column 'txt'"),
    "an option with a slip": (
        ["fit", "votes.csv", "--modle", "pgm"],
        "no such option: --modle. Did you mean --model?",
    ),
    "a side table not there": (["fit", "votes.csv", "--items", "texts.csv"], "texts.csv: no such file"),
    "an unknown setting to try": (
        ["select", "votes.csv", "-m", "fmm", "-g", "alfa=2"],
        "did you mean 'alpha'?",
    ),
    "a range without an end": (["select", "votes.csv", "-k", "3:"], "3:20"),
    "a range of letters": (["select", "votes.csv", "-k", "2:x"], "3:20"),
    "no values": (["select", "votes.csv", "-k", ","], "3:20"),
    "a criterion that is none": (["select", "votes.csv", "-k", "2", "--criterion", "bc"], "'held-out'"),
    "a number of labels that is none": (["recover", "votes.csv", "-r", "x"], "whole numbers"),
    "no run to report": (["report", "thesis", "votes.csv"], "is no run and no saved model"),
    "labels to export": (["export", "votes.csv", "-o", "l.csv"], "dissensus fit votes.csv"),
    "several files for a table": (["import", "votes.csv", "votes.csv", "-o", "l.csv"], "-o l.store"),
    "a metric that is none": (["score", "votes.csv", "votes.csv", "--metric", "kll"], "did you mean 'kl'?"),
    "a broken model": (["score", "bad.safetensors", "votes.csv"], "bad.safetensors"),
    "an impossible crowd": (["simulate", "--labels-per-item", "500", "-o", "c"], "--labels-per-item"),
    "an unknown model": (["info", "dawid"], "did you mean 'dawid-skene'?"),
    "nothing about items": (["import", "votes.csv", "-o", "l.csv", "--items-to", "i.csv"], "--items-to"),
    "a format the name hides": (["import", "votes.csv", "-o", "labels.xyz"], "labels.xyz"),
    "its own input": (["import", "votes.csv", "-o", "votes.csv"], "is the file being read"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(case: str) -> None:
    words, expected = BAD[case]
    write_votes(Path("votes.csv"), "i,a,x\ni,b,x\nj,a,y\nj,b,x\n")
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("years of work")
    Path("bad.safetensors").write_bytes(b"not a model")
    np.save("f.npy", np.zeros((5, 2)))
    before = tree(Path())
    assert expected in failure(*words)
    assert tree(Path()) == before


def test_a_failure_while_writing_leaves_nothing(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dissensus.models.base.Model.save_apart", full_disk)
    line = failure("fit", crowd / "annotations.csv", "-m", "majority", "--test-size", 0, "-o", "refined")
    assert "no space left on device" in line
    assert tree(Path()) == {}
    assert not Path("refined").exists()


# ---- describe, simulate, score, models, import, export, demo -------------------------------------------


def test_describe_counts_by_hand() -> None:
    write_votes(Path("votes.csv"), "i,a,x\ni,b,y\ni,b,y\nj,a,x\n")
    found = json.loads(run("describe", "votes.csv", "--json").stdout)
    assert (found["n_items"], found["n_annotators"], found["n_labels"], found["n_classes"]) == (2, 2, 4, 2)
    assert found["n_repeated_pairs"] == 1
    # i has counts (1, 2), j has (1, 0)
    expected = -(math.log(1 / 3) / 3 + 2 * math.log(2 / 3) / 3) / 2
    assert found["mean_entropy"] == pytest.approx(expected, rel=1e-9)


def test_notes_go_to_standard_error() -> None:
    votes = write_votes(Path("votes.csv"), "i,a,yes\ni,b,Yes\n")
    result = run("fit", votes, "-m", "majority", "--test-size", 0, "--json")
    assert "note: " in result.stderr
    json.loads(result.stdout)


def test_simulate_writes_labels_and_truth(crowd: Path) -> None:
    assert set(tree(crowd)) == {"annotations.csv", "annotators.csv", "population.csv", "summary.json"}
    truth = json.loads((crowd / "summary.json").read_text())["truth"]
    theta, omega = np.array(truth["theta"]), np.array(truth["omega"])
    for row in read_csv(crowd / "population.csv"):
        # Σ_l Ω_l Θ_{w_m,l}
        expected = omega @ theta[int(row["cluster"])]
        found = [float(row[f"p_c{p}"]) for p in (1, 2, 3, 4)]
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_simulate_replays(crowd: Path) -> None:
    again = ["simulate", "--n-items", 80, "--n-annotators", 20, "-k", 3, "-l", 2, "--seed", 4, "-o", "again"]
    run(*again)
    assert Path("again/annotations.csv").read_bytes() == (crowd / "annotations.csv").read_bytes()


def test_score_of_distributions_by_hand() -> None:
    Path("est.csv").write_text("item,p_x,p_y\ni,0.5,0.5\nj,0.9,0.1\nonly,1,0\n")
    Path("truth.csv").write_text("item,p_x,p_y\nj,0.5,0.5\ni,0.5,0.5\nmissing,1,0\n")
    result = run("score", "est.csv", "truth.csv", "--metric", "total_variation", "--bootstrap", 0, "--json")
    found = json.loads(result.stdout)
    assert found["values"]["total_variation"]["value"] == pytest.approx((0.0 + 0.4) / 2, rel=1e-12)
    assert (found["n_items"], found["left_out"]) == (2, 1)
    assert "left out: 1 item of truth.csv" in result.stderr


def test_score_of_labels_against_gold_by_hand() -> None:
    Path("labels.csv").write_text("item,label\ni,x\nj,y\nk,y\n")
    Path("gold.csv").write_text("item,label\ni,x\nj,x\nk,z\n")
    found = json.loads(run("score", "labels.csv", "gold.csv", "--bootstrap", 0, "--json").stdout)
    assert found["values"]["accuracy"]["value"] == pytest.approx(1 / 3, rel=1e-12)
    # F1: x 2·1/(1+2), y 0, z 0
    assert found["values"]["macro_f1"]["value"] == pytest.approx(2 / 9, rel=1e-12)


def test_score_of_a_model_on_hidden_labels_equals_the_library(crowd: Path) -> None:
    run("fit", crowd / "annotations.csv", "-m", "pgm", "-k", 3, "-l", 2, *FMM[4:], "-o", "refined")
    found = json.loads(run("score", "refined/model.safetensors", crowd / "annotations.csv", "--json").stdout)
    model = dissensus.load("refined/model.safetensors")
    labels = dissensus.read_annotations(crowd / "annotations.csv")
    assert found["values"]["score"]["value"] == model.score(labels)
    assert found["values"]["score_items"]["value"] == model.score_items(labels)


def test_score_takes_the_labels_of_a_run(crowd: Path) -> None:
    run("fit", crowd / "annotations.csv", "-m", "majority", "-o", "refined")
    whole, file = (
        run("score", place, crowd / "population.csv", "--json").stdout
        for place in ("refined", "refined/labels.csv")
    )
    assert whole == file


def test_amounts_speak_of_what_there_is() -> None:
    sets = dissensus.Annotations.from_arrays(
        ["i", "i", "j"], ["a", "b", "a"], ['["x","y"]', '["x"]', '["z","y"]'], label_type="multi"
    )
    assert amounts(sets) == "3 labels by 2 annotators on 2 items, 3 classes in 3 different sets"
    write_votes(Path("votes.csv"), "i,a,x\ni,b,y\n")
    assert amounts(dissensus.read_annotations("votes.csv")) == "2 labels by 2 annotators on 1 item, 2 classes"
    Path("battles.csv").write_text("model_a,model_b,judge,winner\nm,n,a,model_a\nm,n,b,tie\n")
    told = amounts(dissensus.read_annotations("battles.csv"))
    assert told.startswith("2 labels by 2 annotators on 1 pair compared, ")


def test_score_of_distributions_on_hidden_labels_by_hand() -> None:
    Path("est.csv").write_text("item,p_x,p_y\ni,0.25,0.75\nj,1,0\n")
    write_votes(Path("hidden.csv"), "i,a,x\ni,b,y\nj,a,x\nunknown,a,x\n")
    found = json.loads(run("score", "est.csv", "hidden.csv", "--json").stdout)
    expected = (math.log(0.25) + math.log(0.75) + math.log(1.0)) / 3
    assert found["values"]["score_items"]["value"] == pytest.approx(expected, rel=1e-12)
    assert found["left_out"] == 1


@pytest.mark.slow
def test_refined_labels_are_closer_to_the_truth_than_raw_counts(crowd: Path) -> None:
    values = []
    for place, words in {
        "raw": ["-m", "empirical", "-s", "smoothing=0"],
        "fmm": ["-m", "fmm", "-k", 3],
    }.items():
        run("fit", crowd / "annotations.csv", *words, "-o", place, "--test-size", 0, "--no-report")
        scored = run("score", f"{place}/labels.csv", crowd / "population.csv", "--json")
        values.append(json.loads(scored.stdout)["values"]["kl"]["value"])
    assert values[1] < values[0]


def test_a_page_is_written_unless_it_is_not_wanted(crowd: Path) -> None:
    words = ["fit", crowd / "annotations.csv", "-m", "fmm", "-k", 3, "-o", "refined"]
    run(*words, "--title", "Pilot <1>", "--test-size", 0)
    page = Path("refined/report.html").read_text(encoding="utf-8")
    assert "<title>Pilot &lt;1&gt;" in page
    run(*words, "--no-report", "--test-size", 0)
    assert not Path("refined/report.html").exists()


def test_a_page_that_cannot_be_made_does_not_cost_the_fit(
    crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dissensus.report.page.page", lambda _: 1 / 0)
    result = run("fit", crowd / "annotations.csv", "-m", "majority", "--test-size", 0, "-o", "refined")
    assert (
        "note: no page (ZeroDivisionError: division by zero); try again with: dissensus report refined"
        in result.stderr
    )
    assert Path("refined/labels.csv").is_file()
    assert not Path("refined/report.html").exists()


@pytest.mark.slow
def test_report_makes_the_page_of_a_run_again(crowd: Path) -> None:
    labels = crowd / "annotations.csv"
    run("fit", labels, "-m", "pgm", "-k", 3, "-l", 2, "-o", "refined")
    first = Path("refined/report.html").read_text(encoding="utf-8")
    run("report", "refined", labels, "-o", "again.html")
    assert Path("again.html").read_text(encoding="utf-8") == first
    run("report", "refined", labels, "--anonymise")
    hidden = Path("refined/report.html").read_text(encoding="utf-8")
    assert '"a01"' in first
    assert '"a01"' not in hidden
    run("report", "refined/model.safetensors", labels)
    assert Path("report.html").is_file()


@pytest.mark.slow
def test_annotators_names_those_who_do_not_look() -> None:
    # Twelve who err on every tenth item, and one who answers by coin.
    rng = np.random.default_rng(0)
    rows = [f"{m},a{n:02d},{'xy'[(m + (rng.random() < 0.1)) % 2]}" for m in range(120) for n in range(12)]
    rows += [f"{m},coin,{'xy'[rng.integers(2)]}" for m in range(120)]
    rows += [f"{m},harsh,{'xy'[m % 2] if m % 8 else 'y'}" for m in range(120)]  # y for every fourth x
    write_votes(Path("votes.csv"), "\n".join(rows) + "\n")
    short = ["--set", "n_chains=2", "--set", "n_sweeps=100", "--test-size", 0, "--no-report"]
    run("fit", "votes.csv", "-o", "judged", "--model", "hpgm", *short)
    text = run("annotators", "judged", "-o", "who.csv").stdout
    verdicts = {row["annotator"]: row["verdict"] for row in read_csv(Path("who.csv"))}
    assert verdicts["coin"] == "spam"
    assert {verdict for who, verdict in verdicts.items() if who != "coin"} == {"typical"}
    assert "13 typical" in text
    first = next(line for line in text.splitlines() if "typical" in line and "%" in line)
    assert "harsh" in first
    assert "y +1" in first  # 15 of 120 items, less or more what chance made the others say
    found = json.loads(run("annotators", "judged", "--json").stdout)
    assert dict(zip(found["annotator"], found["verdict"], strict=True)) == verdicts


@pytest.mark.slow
def test_select_finds_the_grids_best_cell_and_fits_it(crowd: Path) -> None:
    words = ["select", crowd / "annotations.csv", "-k", "2:3", "-l", "1,2", "--repeats", 2, "--no-report"]
    found = json.loads(run(*words, "-o", "search", "--json").stdout)
    cells = read_csv(Path("search/cells.csv"))
    sizes = [(int(row["n_item_clusters"]), int(row["n_annotator_clusters"])) for row in cells]
    assert sorted(sizes) == [(2, 1), (2, 2), (3, 1), (3, 2)]
    assert [float(row["score"]) for row in cells] == sorted(
        (float(row["score"]) for row in cells), reverse=True
    )
    winner = found["search"]["winner"]
    assert (winner["n_item_clusters"], winner["n_annotator_clusters"]) == sizes[0]
    assert {name: found["settings"][name] for name in winner} == winner
    assert set(found["search"]["gains"]) == {"FMM", "counts"}
    assert Path("search/labels.csv").is_file()


@pytest.mark.slow
def test_select_goes_on_where_it_was(crowd: Path) -> None:
    words = [
        "select",
        crowd / "annotations.csv",
        "-m",
        "fmm",
        "-k",
        "2,3",
        "--repeats",
        2,
        "-j",
        1,
        "--no-report",
        "-o",
    ]
    run(*words, "whole")
    run(*words, "cut")
    record = Path("cut/search.jsonl")
    whole = record.read_bytes().splitlines(keepends=True)
    # Killed in the middle of a line, with no result written.
    record.write_bytes(b"".join(whole[:5]) + whole[5][:20])
    for name in ("cells.csv", "labels.csv", "model.safetensors"):
        Path("cut", name).unlink()
    run(*words, "cut")

    def scores(place: str) -> list[dict[str, str]]:
        return [
            {k: v for k, v in row.items() if k != "seconds"} for row in read_csv(Path(place, "cells.csv"))
        ]

    assert scores("cut") == scores("whole")
    assert Path("cut/labels.csv").read_bytes() == Path("whole/labels.csv").read_bytes()


def test_an_interrupted_select_says_that_it_can_go_on(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dissensus.evaluate.select.ranked", interrupted)
    words = ["select", crowd / "annotations.csv", "-m", "fmm", "-k", "2", "--repeats", 1, "-j", 1, "-o", "s"]
    assert failure(*words, code=130) == "interrupted; s keeps what is finished: run the same again"
    assert Path("s/search.jsonl").is_file()


@pytest.mark.parametrize("command", ["fit", "select", "recover", "annotators"])
def test_a_number_of_jobs_that_makes_no_sense_is_told_by_its_option(crowd: Path, command: str) -> None:
    line = failure(command, crowd / "annotations.csv", "-j", 0)
    assert line.startswith("--jobs must be an int >= 1, or -1 for")


@pytest.mark.slow
def test_recover_shows_every_model_beside_the_counts() -> None:
    run("simulate", "--n-items", 60, "--labels-per-item", 16, "-k", 3, "-l", 2, "-o", "crowd")
    words = ["-r", "2,4", "-k", 3, "-l", 2, "-m", "fmm", "-m", "pgm inference=vb", "--draws", 2, "-j", 1]
    result = run("recover", "crowd/annotations.csv", *words, "-o", "recovery")
    assert "60 items, 8.0 labels kept back each" in result.stdout
    rows = read_csv(Path("recovery/recovery.csv"))
    assert {(row["name"], row["labels_shown"]) for row in rows} == {
        (name, shown) for name in ("fmm", "pgm inference=vb") for shown in ("2", "4")
    }
    found = json.loads(run("recover", "crowd/annotations.csv", *words, "--json").stdout)
    assert [point["labels_shown"] for point in found["counts"]] == list(range(1, 9))
    assert float(rows[0]["kl"]) == pytest.approx(found["models"][0]["kl"], rel=1e-5)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("3:6", [3, 4, 5, 6]),
        ("1,2,4", [1, 2, 4]),
        ("1, 8:9", [1, 8, 9]),
        ("1.5", [1.5]),
        ("bp,vb", ["bp", "vb"]),
        ("none,0.5", [None, 0.5]),
    ],
)
def test_values_to_try(text: str, values: list[Any]) -> None:
    assert parse_values(text) == values


@pytest.mark.parametrize(
    ("text", "value"),
    [(".3", 0.3), ("2,2,1.5", [2.0, 2.0, 1.5]), ("[2, 1]", [2, 1]), ("vb", "vb"), ("none", None)],
)
def test_values_of_settings(text: str, value: Any) -> None:
    assert parse_value(text) == value


def test_info_lists_every_model_and_its_settings() -> None:
    assert set(json.loads(run("info", "--json").stdout)["models"]) == {*MODELS}
    settings = json.loads(run("info", "fmm", "--json").stdout)
    meaning = "How many clusters of items there are."
    assert settings[0] == {
        "name": "n_item_clusters",
        "default": "10",
        "rule": "an int >= 1",
        "meaning": meaning,
    }
    assert meaning in run("info", "fmm").stdout
    assert "n_item_clusters" in run("info", "fmm").stdout


def test_import_turns_an_export_into_a_table() -> None:
    def judged(who: int, choice: str) -> dict[str, Any]:
        answer = {"from_name": "mood", "to_name": "text", "type": "choices", "value": {"choices": [choice]}}
        return {"id": who, "completed_by": who, "result": [answer], "was_cancelled": False}

    tasks = [{"id": 7, "data": {"text": "hello"}, "annotations": [judged(1, "good"), judged(2, "bad")]}]
    Path("export.json").write_text(json.dumps(tasks))
    run("import", "export.json", "-o", "labels.csv", "--items-to", "texts.csv")
    rows = read_csv(Path("labels.csv"))
    assert [(row["item"], row["label"]) for row in rows] == [("7", "good"), ("7", "bad")]
    assert read_csv(Path("texts.csv"))[0]["text"] == "hello"


def test_import_of_class_counts_keeps_the_counts() -> None:
    Path("counts.csv").write_text("item,yes,no\ni,3,1\nj,0,4\n")
    run("import", "counts.csv", "--layout", "counts", "-o", "out.csv")
    expected = [
        {"item": "i", "count_yes": "3", "count_no": "1"},
        {"item": "j", "count_yes": "0", "count_no": "4"},
    ]
    assert read_csv(Path("out.csv")) == expected
    assert json.loads(run("describe", "out.csv", "--json").stdout)["class_counts"] == {"yes": 3, "no": 5}


def test_export_writes_weighted_rows(crowd: Path) -> None:
    run("fit", crowd / "annotations.csv", *FMM, "-o", "refined")
    run("export", "refined/model.safetensors", "-o", "rows.csv", "--format", "weighted")
    weights: dict[str, float] = {}
    for row in read_csv(Path("rows.csv")):
        weights[row["item"]] = weights.get(row["item"], 0.0) + float(row["weight"])
    assert len(weights) == 80
    np.testing.assert_allclose(list(weights.values()), 1.0, rtol=1e-9)
