"""``dissensus fit`` and ``update``: files written, resources, and fits that were stopped."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus
from dissensus._version import __version__
from dissensus.engine import ConvergenceMonitor
from dissensus.errors import DataError
from dissensus.large import resources as resourcing
from tests.helpers.cli import failure, random_votes, read_csv, run, tree, write_simulation, write_votes
from tests.helpers.registry import OF_CLASSES

pytestmark = pytest.mark.usefixtures("without_pandas")

FMM = ["--model", "fmm", "-k", 3, "--no-report"]
MAJORITY = ["--model", "majority", "--no-report"]


# ---- files --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_of_a_run(refined: tuple[Path, Any]) -> None:
    directory, summary = refined
    files = {"annotations.parquet", "labels.csv", "annotators.csv", "report.html", "summary.json"}
    assert set(tree(directory)) == files | {"model.safetensors", "draws.safetensors"}
    assert summary == json.loads((directory / "summary.json").read_text())
    assert (summary["model"], summary["reason"], summary["held_out"]) == ("pool", None, [])
    assert 0 < summary["run_difference"] < 0.1
    assert summary["stopped"] in ("tolerance", "number of chains")
    assert summary["estimate"] == "population"
    assert {"chosen_by", "test_size"}.isdisjoint(summary)
    labels, classes = read_csv(directory / "labels.csv"), ["c1", "c2", "c3", "c4"]
    columns = [f"{prefix}_{name}" for prefix in ("p", "low", "high") for name in classes]
    assert list(labels[0]) == ["item", "label", *columns, "p_top", "effective_labels", "entropy", "n_labels"]
    assert len(labels) == 80
    for row in labels:
        shares = np.array([float(row[f"p_{name}"]) for name in classes])
        assert shares.sum() == pytest.approx(1, rel=1e-5)
        assert float(row["entropy"]) == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-4)
        assert row["n_labels"] == "5"
    assert sum(int(row["n_labels"]) for row in read_csv(directory / "annotators.csv")) == 400
    model = dissensus.load(directory / "model.safetensors")
    assert list(model.predict()) == [row["label"] for row in labels]


def test_summary_records_the_settings(crowd: Path) -> None:
    file = crowd / "annotations.csv"
    words = ["--model", "fmm", "-k", 3, "--set", "alpha=1.5", "--seed", 9]
    run("fit", file, "-o", "refined", *words)
    summary = json.loads(Path("refined/summary.json").read_text())
    # an absolute path is shortened: others may read the files
    assert summary["command"].startswith("dissensus fit '…/crowd/annotations.csv' -o refined")
    assert summary["source"] == "…/crowd/annotations.csv"
    assert summary["settings"]["n_item_clusters"] == 3
    assert summary["settings"]["alpha"] == 1.5
    assert summary["seed"] == summary["settings"]["seed"] == 9
    assert summary["data"]["n_labels"] == 400
    assert (summary["held_out"], summary["run_difference"]) == ([], None)
    assert summary["versions"]["dissensus"] == __version__
    assert set(summary["seconds"]) == {"fit", "write", "report"}


@pytest.mark.slow
def test_comparison_is_printed_and_stored(crowd: Path) -> None:
    words = ["fit", crowd / "annotations.csv", "--model", "fmm", "-k", 3, "--no-report", "--compare"]
    text = run(*words, "-o", "refined").stdout
    assert "difference to best" in text
    summary = json.loads(Path("refined/summary.json").read_text())
    scores = [row["score_items"] for row in summary["held_out"]]
    assert scores == sorted(scores, reverse=True)
    assert all(map(math.isfinite, scores))
    assert {"pool", "empirical"} <= {row["model"] for row in summary["held_out"]}
    assert (summary["model"], set(summary["seconds"])) == ("fmm", {"fit", "compare", "write"})


@pytest.mark.slow
def test_time_limit_and_second_run(crowd: Path) -> None:
    """The terminal, summary.json and the page say how far another run would be."""
    words = ["-s", "n_chains=2", "-s", "n_sweeps=10", "--minutes", "0.00001", "-v"]
    text = " ".join(run("fit", crowd / "annotations.csv", *words, "-o", "refined").stdout.split())
    summary = json.loads(Path("refined/summary.json").read_text())
    assert summary["stopped"] == "time limit"
    assert "(stopped: time limit)" in text
    assert summary["run_difference"] > 0.001
    moved = f"{100 * summary['run_difference']:.1f} % on average"
    assert f"A second run, with another seed, would move an item's shares by {moved}." in text
    assert moved in Path("refined/report.html").read_text(encoding="utf-8")
    assert len(dissensus.load("refined/model.safetensors").last_states_) == 2


def test_output_is_named_after_the_file_and_reproducible(crowd: Path) -> None:
    Path("votes.v2.csv").write_bytes((crowd / "annotations.csv").read_bytes())
    run("fit", "votes.v2.csv", *FMM, "--seed", 3)
    run("fit", "votes.v2.csv", *FMM, "--seed", 3, "-o", "again")
    assert Path("votes.v2-refined/labels.csv").read_bytes() == Path("again/labels.csv").read_bytes()


@pytest.mark.parametrize("model", OF_CLASSES)
def test_every_model_runs(crowd: Path, model: str) -> None:
    np.save("features.npy", np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32))
    quick = {"ldlnm": "epochs=2", "hpgm": "n_sweeps=20", "pool": "n_sweeps=20", "latent": "n_sweeps=20"}
    words = ["--set", quick[model]] if model in quick else []
    words += ["--features", "features.npy", "--no-report"]
    run("fit", crowd / "annotations.csv", "--model", model, *words, "-o", model)
    assert json.loads(Path(model, "summary.json").read_text())["model"] == model


def test_class_counts_have_no_annotators() -> None:
    Path("counts.csv").write_text("item,yes,no\ni,3,1\nj,0,4\nk,2,2\n")
    run("fit", "counts.csv", "--label-column", "yes", "--label-column", "no", "--no-report")
    assert not Path("counts-refined/annotators.csv").exists()
    assert [row["n_labels"] for row in read_csv(Path("counts-refined/labels.csv"))] == ["4", "4", "4"]


def test_report_is_optional_and_has_a_title(crowd: Path) -> None:
    words = ["fit", crowd / "annotations.csv", "-m", "fmm", "-k", 3, "-o", "refined"]
    run(*words, "--title", "Pilot <1>")
    assert "<title>Pilot &lt;1&gt;" in Path("refined/report.html").read_text(encoding="utf-8")
    run(*words, "--no-report")
    assert not Path("refined/report.html").exists()


def test_failed_report_does_not_lose_the_fit(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.report.page.page", lambda _: 1 / 0)
    result = run("fit", crowd / "annotations.csv", *MAJORITY[:-1], "-o", "refined")
    reason = "the report was not written (ZeroDivisionError: division by zero)"
    assert f"note: {reason}; try again with: dissensus report refined" in result.stderr
    assert Path("refined/labels.csv").is_file()
    assert not Path("refined/report.html").exists()


# ---- printed lines ------------------------------------------------------------------------------------


def test_next_steps_come_first_then_the_report_then_notes() -> None:
    random_votes()
    Path("votes.csv").write_text(Path("votes.csv").read_text() + "i1,a0,X\n")
    result = run("fit", "votes.csv", "--model", "fmm", "-k", 2)
    lines = result.stdout.splitlines()
    assert lines[1].startswith("• ")
    report = next(n for n, line in enumerate(lines) if line.startswith("Report: "))
    assert lines[report] == "Report: votes-refined/report.html"
    assert all(line.startswith("• ") for line in lines[1:report])
    assert "difference to best" not in result.stdout
    assert "note: 2 classes differ" in result.stderr
    assert "Model: FMM" in run("fit", "votes.csv", "--model", "fmm", "-k", 2, "-v").stdout


def test_accuracy_on_gold_labels_is_printed() -> None:
    write_votes(Path("votes.csv"), "i,a,x\ni,b,x\nj,a,y\nj,b,y\n")
    Path("gold.csv").write_text("item,label\ni,x\nj,x\n")
    text = run("fit", "votes.csv", "--gold", "gold.csv", *MAJORITY).stdout
    assert "Accuracy on gold labels: 50.0% (not used" in text


def test_language_models_are_noted_unless_anonymous() -> None:
    rows = "".join(f"i{m},{who},{'xy'[m % 2]}\n" for m in range(6) for who in ("ann", "bob", "gpt-4o"))
    write_votes(Path("votes.csv"), rows)
    notes = " ".join(run("fit", "votes.csv", *FMM).stderr.split())
    assert "1 annotator with the name of a language model, such as gpt-4o" in notes
    assert "dissensus judges votes.csv" in notes
    assert "gpt-4o" not in run("fit", "votes.csv", *FMM, "--anonymise", "-o", "hidden").stderr


def test_attributes_stay_out_of_an_anonymous_run() -> None:
    random_votes()
    Path("people.csv").write_text("annotator,email\n" + "".join(f"a{n},a{n}@x.org\n" for n in range(5)))
    run("fit", "votes.csv", "--annotators", "people.csv", "--anonymise", *FMM[:-1], "-o", "hidden")
    assert not any(b"@x.org" in content for content in tree(Path("hidden")).values())


# ---- update -------------------------------------------------------------------------------------------


def test_update_keeps_gold_and_the_estimate() -> None:
    random_votes()
    Path("gold.csv").write_text("item,label\n" + "".join(f"i{m},{'xyz'[m % 3]}\n" for m in range(12)))
    words = ["--model", "dawid-skene", "--estimate", "truth", "--gold", "gold.csv", "--no-report"]
    run("fit", "votes.csv", *words, "-o", "refined")
    write_votes(Path("new.csv"), "i001,a0,x\ni1,new,x\n")
    result = run("update", "refined", "new.csv", "-o", "later", "--no-report")
    assert "2 labels added, 1 new item, 1 new annotator; 122 labels in total" in result.stdout
    summary = json.loads(Path("later/summary.json").read_text())
    assert summary["estimate"] == "truth"
    assert summary["gold"]["n_items"] == 12
    assert dissensus.read_annotations("later").gold is not None


# ---- resources ----------------------------------------------------------------------------------------

PGM = ["--model", "pgm", "-k", "4", "-l", "3", "--no-report"]
PGM += ["-s", "max_iter=12", "-s", "tol=0"]


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels of 150 simulated items."""
    return write_simulation(tmp_path_factory.mktemp("resources") / "crowd", 150, seed=2) / "annotations.csv"


def results(folder: Path) -> dict[str, bytes]:
    """Return the files that must not depend on the resources used."""
    return {name: (folder / name).read_bytes() for name in ("labels.csv", "model.safetensors")}


def test_options_reach_the_library(votes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {}

    @contextmanager
    def record(**arguments: Any) -> Iterator[None]:
        settings.clear()
        settings.update(arguments)
        raise DataError("stop here")
        yield

    monkeypatch.setattr(resourcing, "resources", record)
    options = {"cluster": "tls://host:1", "memory": "3GB", "scratch": Path("s"), "checkpoint": Path("k")}
    fewer = {"cluster": "tcp://host:1", "scratch": Path("s")}
    for command, expected, n_jobs in (("fit", options, 2), ("select", fewer, -1)):
        words = [word for name, value in expected.items() for word in (f"--{name}", value)]
        assert failure(command, votes, *words, "--jobs", n_jobs) == "stop here"
        given = {name: value for name, value in settings.items() if value is not None}
        assert given == {"n_workers": n_jobs} | expected


def test_memory_limit_of_held_out_labels_and_report(votes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.evaluate.compare.SPLIT_BYTES_PER_LABEL", 1_000_000)
    line = failure("fit", votes, *PGM, "--compare", "--memory", "1GB", "-o", "out")
    assert "750MB of memory" in line
    assert line.endswith("; raise --memory")
    monkeypatch.setattr("dissensus.workflow.runs.REPORT_BYTES_PER_LABEL", 1_000_000)
    words = [word for word in PGM if word != "--no-report"]
    notes = run("fit", votes, *words, "--memory", "900MB", "-o", "out").stderr
    assert "it needs about 1GB of memory; the limit is 900MB" in notes
    assert not Path("out/report.html").exists()
    run("fit", votes, *words, "--memory", "1GB", "-o", "out")
    assert Path("out/report.html").exists()


def test_memory_and_disk_do_not_change_the_result(votes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.models.base.PROCESS_BYTES", 1_000_000)
    run("fit", votes, *PGM, "-o", "plain")
    needed = re.search(r"needs at least (\S+) of memory", failure("fit", votes, *PGM, "--memory", "1MB"))
    assert needed is not None
    run("fit", votes, *PGM, "--memory", needed[1], "--scratch", "scratch", "-o", "limited")
    assert results(Path("limited")) == results(Path("plain"))
    assert list(Path("scratch").iterdir()) == []  # the messages of the fit were there


# ---- checkpoints --------------------------------------------------------------------------------------


def test_fit_that_fails_while_writing_is_resumed(votes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["fit", votes, *PGM, "--checkpoint", "keep", "-o", "out"]
    Path("keep").mkdir()
    Path("keep/notes.txt").write_text("mine")

    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dissensus.tables.atomic.sync", full_disk)
        assert "no space left on device" in failure(*words)
    assert [file.name for file in Path().iterdir()] == ["keep"]
    assert len(list(Path("keep").iterdir())) == 2
    run(*words)
    assert [file.name for file in Path("keep").iterdir()] == ["notes.txt"]
    run(*words[:-4], "-o", "whole")
    assert results(Path("out")) == results(Path("whole"))


def test_interrupted_fit_says_how_to_resume(votes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = ConvergenceMonitor.report

    def interrupted(monitor: ConvergenceMonitor, *state: Any) -> bool:
        stops = report(monitor, *state)
        if len(monitor.trace) == n_iterations:
            raise KeyboardInterrupt
        return stops

    monkeypatch.setattr(ConvergenceMonitor, "report", interrupted)
    words = ["fit", votes, *PGM, "--checkpoint", "keep", "-o", "out"]
    n_iterations = 1  # before the first checkpoint
    assert failure(*words, code=130) == "interrupted; nothing was written"
    n_iterations = 6
    expected = "interrupted; the fit is saved in keep; run the same command to resume"
    assert failure(*words, code=130) == expected
