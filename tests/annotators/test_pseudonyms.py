"""Pseudonyms hide annotator ids, and --safe-csv escapes spreadsheet formulas."""

import json
from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus.annotators.pseudonyms import is_pseudonymous, pseudonymise, users_key
from tests.helpers.cli import run, tree, write_votes

PEOPLE = ["Anna Abend", "anna abend", "Bert Berg", "Carla Chor", "Dora Dahl"]


@pytest.fixture
def votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    rows = [f"i{i},{who},{'xyz'[rng.integers(3)]}\n" for i in range(12) for who in PEOPLE]
    return write_votes(tmp_path / "votes.csv", "".join(rows))


def test_no_file_of_a_run_contains_an_id(votes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("fit", votes, "--model", "dawid-skene", "--anonymise", "-o", out)
    for name, content in tree(out).items():
        assert not any(who.encode() in content for who in PEOPLE), name
    names = list(map(str, ds.load(out / "model.safetensors").annotator_vocabulary_.ids))
    assert names == first_cells(out / "annotators.csv") == [f"annotator {n}" for n in range(1, 6)]


def first_cells(path: Path) -> list[str]:
    return [line.split(",")[0].strip('"') for line in path.read_text().splitlines()[1:]]


def test_pseudonyms_depend_on_the_key(votes: Path) -> None:
    labels = ds.read_annotations(votes)
    hidden, again = pseudonymise(labels), pseudonymise(labels)
    assert hidden.fingerprint() == again.fingerprint()
    others = {pseudonymise(labels, bytes([key])).fingerprint() for key in range(5)}
    assert len(others) > 1
    assert users_key() == users_key()
    assert len(users_key()) == 32
    assert (is_pseudonymous(hidden), is_pseudonymous(labels)) == (True, False)
    assert pseudonymise(hidden) is hidden
    # annotators keep their labels
    loads = [sorted(map(tuple, table(part).tolist())) for part in (labels, hidden)]
    assert loads[0] == loads[1]
    np.testing.assert_array_equal(labels.counts, hidden.counts)


def table(annotations: ds.Annotations) -> np.ndarray:
    """Return (annotators, items): the labels."""
    codes = np.full((annotations.n_annotators, annotations.n_items), -1)
    codes[annotations.annotator, annotations.item] = annotations.label
    return codes


def test_annotator_tables_follow_the_pseudonyms(votes: Path, tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("annotator,town\n" + "".join(f"{who},{who[-1]}-town\n" for who in PEOPLE))
    labels = ds.read_annotations(votes, annotators=people)
    hidden = pseudonymise(labels)
    towns, moved = (
        dict(zip(map(tuple, table(part)), part.annotator_column("town"), strict=True))
        for part in (labels, hidden)
    )
    assert towns == moved
    assert not any(who in str(hidden.annotator_table.to_pydict()) for who in PEOPLE)


def test_safe_csv_escapes_formulas(tmp_path: Path) -> None:
    risky = ["=1+1", "+x", "-x", "@x", "-1"]
    pairs = [(i, w) for i in range(len(risky)) for w in range(2)]
    rows = "".join(f"{risky[i]},{'ab'[w]},{'yn'[(i + w) % 2]}\n" for i, w in pairs)
    file = write_votes(tmp_path / "votes.csv", rows)
    run("fit", file, "--model", "majority", "--no-report", "-o", tmp_path / "plain")
    run("fit", file, "--model", "majority", "--no-report", "--safe-csv", "-o", tmp_path / "safe")
    run("export", tmp_path / "plain", "-o", tmp_path / "e.csv", "--safe-csv")
    paths = ("plain/labels.csv", "safe/labels.csv", "e.csv")
    plain, safe, exported = (first_cells(tmp_path / path) for path in paths)
    assert sorted(plain) == sorted(risky)
    assert safe == exported == [f"'{item}" for item in plain]
    assert json.loads((tmp_path / "safe" / "summary.json").read_text())["files"]
