"""What --anonymise writes names nobody, and CSV files with --safe-csv hold no formula."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from cli_help import run, tree, write_votes
from dissensus.annotators.pseudonyms import pseudonymised, pseudonymous, users_key

PEOPLE = ["Anna Abend", "anna abend", "Bert Berg", "Carla Chor", "Dora Dahl"]


@pytest.fixture
def votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path / "cache"))
    chance = np.random.default_rng(0)
    rows = [f"i{i},{who},{'xyz'[chance.integers(3)]}\n" for i in range(12) for who in PEOPLE]
    return write_votes(tmp_path / "votes.csv", "".join(rows))


@pytest.mark.parametrize("words", [["fit", "--model", "dawid-skene"]], ids=["fit"])
def test_nothing_that_is_written_names_an_annotator(words: list[str], votes: Path, tmp_path: Path) -> None:
    command, *others = words
    out = tmp_path / "out"
    run(command, votes, *others, "--anonymise", "-o", out)
    for name, content in tree(out).items():
        assert not any(who.encode() in content for who in PEOPLE), name
    model = ds.load(out / "model.safetensors")
    assert [str(name) for name in model.annotator_vocabulary_.ids] == [f"annotator {n}" for n in range(1, 6)]
    csv = (out / "annotators.csv").read_text().splitlines()
    assert [line.split(",")[0].strip('"') for line in csv[1:]] == [f"annotator {n}" for n in range(1, 6)]


def test_numbers_are_the_same_again_and_another_key_gives_others(votes: Path) -> None:
    labels = ds.read_annotations(votes)
    one, again, other = pseudonymised(labels), pseudonymised(labels), pseudonymised(labels, b"another")
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
    assert users_key() == users_key()
    assert len(users_key()) == 32
    assert pseudonymous(one)
    assert not pseudonymous(labels)
    assert pseudonymised(one) is one
    # Everybody keeps their labels: who has which is a renaming.
    loads = [sorted(map(tuple, table(part).tolist())) for part in (labels, one)]
    assert loads[0] == loads[1]
    np.testing.assert_array_equal(labels.counts, one.counts)


def table(annotations: ds.Annotations) -> np.ndarray:
    """(annotators, items): who gave which label."""
    found = np.full((annotations.n_annotators, annotations.n_items), -1)
    found[annotations.annotator, annotations.item] = annotations.label
    return found


def test_side_tables_move_along(votes: Path, tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("annotator,town\n" + "".join(f"{who},{who[-1]}-town\n" for who in PEOPLE))
    labels = ds.read_annotations(votes, annotators=people)
    hidden = pseudonymised(labels)
    towns = {
        tuple(row): town for row, town in zip(table(labels), labels.annotator_column("town"), strict=True)
    }
    moved = zip(table(hidden), hidden.annotator_column("town"), strict=True)
    assert all(towns[tuple(row)] == town for row, town in moved)
    assert not any(who in str(hidden.annotator_table.to_pydict()) for who in PEOPLE)


def test_formulas_are_neutralised_where_that_is_asked_for(tmp_path: Path) -> None:
    risky = ["=1+1", "+x", "-x", "@x", "-1"]
    pairs = [(i, w) for i in range(len(risky)) for w in range(2)]
    rows = "".join(f"{risky[i]},{'ab'[w]},{'yn'[(i + w) % 2]}\n" for i, w in pairs)
    file = write_votes(tmp_path / "votes.csv", rows)
    run("fit", file, "--model", "majority", "--no-report", "-o", tmp_path / "plain")
    run("fit", file, "--model", "majority", "--no-report", "--safe-csv", "-o", tmp_path / "safe")
    run("export", tmp_path / "plain", "-o", tmp_path / "e.csv", "--safe-csv")
    first = [
        [line.split(",")[0].strip('"') for line in path.read_text().splitlines()[1:]]
        for path in (tmp_path / "plain" / "labels.csv", tmp_path / "safe" / "labels.csv", tmp_path / "e.csv")
    ]
    assert sorted(first[0]) == sorted(risky)
    assert first[1] == first[2] == [f"'{item}" for item in first[0]]
    assert json.loads((tmp_path / "safe" / "summary.json").read_text())["files"]
