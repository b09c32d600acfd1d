"""Pseudonyms hide annotator ids, and --safe-csv escapes spreadsheet formulas."""

import html
import json
import re
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

import dissensus as ds
from dissensus.annotators.pseudonyms import is_pseudonymous, pseudonymise, users_key
from dissensus.errors import DissensusWarning
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


def decoded(folder: Path) -> dict[str, str]:
    """Return everything in the files of a run as text: cells of Parquet, JSON and HTML unescaped."""
    texts = {}
    for path in filter(Path.is_file, folder.rglob("*")):
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
            texts[path.name] = f"{table.to_pydict()} {table.schema.metadata}"
        else:
            raw = path.read_bytes().decode("utf-8", "replace")
            escaped = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), raw)
            texts[path.name] = " ".join((raw, escaped, html.unescape(raw), unquote(raw)))
    return texts


NAMES = ["anna.abend@firm.example", "bert.berg@firm.example", "Zoë Ö’Dóla", "annotator 4711", "Bo"]


def write_crowd(folder: Path, layout: str) -> tuple[Path, list[str]]:
    """Write the same answers as a long, a wide, a multi-index or an export file; return it with options."""
    rng = np.random.default_rng(1)
    rows = [(f"i{i}", name, "xyz"[rng.integers(3)]) for i in range(12) for name in NAMES]
    path = folder / f"{layout}.csv"
    frame = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    if layout == "long":
        frame.rename(columns={"annotator": "who"}).to_csv(path, index=False)
        return path, ["--annotator-column", "who"]
    if layout in ("wide", "named"):
        frame.pivot(index="item", columns="annotator", values="label").to_csv(path)
        if layout == "wide":  # addresses need no option
            frame = frame[frame.annotator.str.contains("@")]
            frame.pivot(index="item", columns="annotator", values="label").to_csv(path)
        return path, [word for name in NAMES * (layout == "named") for word in ("--annotator-column", name)]
    if layout == "multi":
        frame["label"] += "," + frame["label"].map({"x": "y", "y": "z", "z": "x"})
        frame.to_csv(path, index=False)
        return path, []
    path = folder / "export.json"
    tasks = [
        {"id": n, "data": {"text": item}, "annotations": [
            {"id": 10 * n + k, "completed_by": {"email": name}, "result": [
                {"type": "choices", "from_name": "c", "to_name": "t", "value": {"choices": [label]}}]}
            for k, (_, name, label) in enumerate(part.itertuples(index=False, name=None))]}
        for n, (item, part) in enumerate(frame.groupby("item"), 1)
    ]  # fmt: skip
    path.write_text(json.dumps(tasks), encoding="utf-8")
    return path, []


@pytest.mark.parametrize("layout", ["long", "wide", "named", "multi", "export"])
def test_no_name_is_left_in_any_file(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path / "cache"))
    path, options = write_crowd(tmp_path, layout)
    out = tmp_path / "run"
    run("fit", path, *options, "--fast", "--anonymise", "-o", out)
    texts = decoded(out)
    assert {"report.html", "summary.json", "annotations.parquet", "annotators.csv"} <= set(texts)
    long = [name for name in NAMES if len(name) > 2]
    assert [(file, name) for file, text in texts.items() for name in long if name in text] == []
    n_people = 2 if layout == "wide" else 5
    assert first_cells(out / "annotators.csv") == [f"annotator {n + 1}" for n in range(n_people)]
    assert "Bo" not in re.findall(r"\w+", texts["summary.json"] + texts["annotators.csv"])


@pytest.mark.parametrize(
    "names",
    [
        ["Ana  Maria Lopez", "Ben\u00a0Carl Smith", "rater 3"],  # listed with single spaces
        ["Annalena Maria von und zu Weissenberg-Hohenfels", "Bartholomew Maximilian of Featherstonehaugh"],
        ["Ana Lopez", "Ben Smith", "Zoe Quist"],  # the last one gives answers of her own, and is left out
    ],
)
def test_names_of_wide_tables_in_other_forms_are_hidden(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path / "cache"))
    answers = {name: [("uq" if name[:3] == "Zoe" else "xy")[(i + n) % 2] for i in range(12)]
               for n, name in enumerate(names)}  # fmt: skip
    frame = pd.DataFrame({"item": [f"i{i}" for i in range(12)], **answers})
    labels = ds.read_annotations(frame, layout="wide")
    assert any("left out" in note for note in labels.notes) == ("Zoe Quist" in names)
    hidden = pseudonymise(labels)
    shown = f"{hidden.columns_read} {hidden.notes} {hidden.item_table} {hidden.annotators}"
    words = {word for name in names for word in name.replace("\u00a0", " ").split() if len(word) > 3}
    assert {word for word in words if word in shown} == set()


def test_names_in_the_name_of_the_file_are_hidden(tmp_path: Path) -> None:
    path, _ = write_crowd(tmp_path, "long")
    file = path.rename(tmp_path / "votes-of-anna.abend@firm.example.csv")
    run("fit", file, "--annotator-column", "who", "--fast", "--anonymise", "-o", tmp_path / "run")
    assert not any("anna.abend" in text for text in decoded(tmp_path / "run").values())


def test_anonymous_page_of_a_named_run(tmp_path: Path) -> None:
    path, _ = write_crowd(tmp_path, "wide")
    run("fit", path, "--fast", "-o", tmp_path / "run")
    run("report", tmp_path / "run", "--anonymise", "-o", tmp_path / "page" / "page.html")
    (text,) = decoded(tmp_path / "page").values()
    assert not any(name in text for name in NAMES if len(name) > 2)


def test_names_like_pseudonyms_are_replaced_or_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path / "cache"))
    item, who = (column.ravel() for column in np.indices((5, 3)))
    for first, stays in ((4711, False), (1, True)):
        names = [f"annotator {first + n}" for n in range(3)]
        labels = ds.Annotations.from_arrays(item, np.array(names)[who], (item + who) % 2)
        with pytest.warns(DissensusWarning, match="these names stay") if stays else nullcontext():
            hidden = pseudonymise(labels)
        assert hidden.annotators.tolist() == ["annotator 1", "annotator 2", "annotator 3"]
        assert (hidden is labels) == stays


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
    with pytest.warns(DissensusWarning, match="these names stay"):
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
