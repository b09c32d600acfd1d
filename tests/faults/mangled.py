"""Damaged inputs from seeds: each is refused with a one-line error, or read as valid data.

A seed takes a valid input (tables in every format, side tables, exports of every tool, stores, saved models,
learners and runs), damages it, and reads it. Valid labels have codes within their vocabularies, sorted rows
and no blank id, and are the same when read again. Stores and saved files have checksums over all bytes, so
they are refused or have the content that was written. Some stores and models are changed together with their
checksums, as an attacker would; if they open, models can be fitted to them.

    python -m tests.faults.mangled [--kind saved] [FIRST STOP]      seeds 0 to 9,999 by default

``--kind saved`` damages only what dissensus saved: stores, models, learners, runs and their files.
"""

import gzip
import json
import random
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as ds
from dissensus.importers import FORMATS, recognise
from dissensus.tables.arrays import read_arrays, write_arrays
from dissensus.tables.results import label_table
from dissensus.tables.write import write_table
from dissensus.workflow.refine import fit
from dissensus.workflow.runs import load_run, write_run
from tests.faults.exports import EXPORTS, Crowd
from tests.helpers.export_samples import SAMPLES, label_studio_csv, mturk_form, zooniverse
from tests.helpers.store import forge

Reader = Callable[[Path], str]  # returns the fault, empty if there is none

ODD_WORDS = [
    b"null", b"NaN", b"-0", b"1e999", b'""', b"{}", b"[]", b"[[[[", b'{"a":', b"\xff\xfe", b"\x00", b"item",
    b"\xed\xa0\x80", b",,,,", b'"', b"\r", b"\n\n", b"=1+1", b"9" * 50, b"\\ud800", b"label", b"PAR1",
    b"PK\x03\x04", b"\t", b"\xef\xbb\xbf", b"true",
]  # fmt: skip
ODD_VALUES: list[Any] = [
    None, True, 0, -1.5, "", " ", "x", [], {}, [None], [[]], [{}], {"a": {"b": None}}, "\ud800", 10**30,
    "é\u0000",
]  # fmt: skip


# ---- damage -------------------------------------------------------------------------------------------


def damage_bytes(raw: bytes, rng: random.Random) -> bytes:
    """Cut, drop, double, flip, replace or reverse bytes, up to three times."""
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(raw) + 1)
        stop = min(len(raw), start + rng.choice([1, 4, 40, 400]))
        before, middle, after = raw[:start], raw[start:stop], raw[stop:]
        flipped = bytes([middle[0] ^ 1 << rng.randrange(8)]) + middle[1:] if middle else b""
        word = rng.choice(ODD_WORDS)
        replacements = (b"", middle * 2, middle[::-1], rng.randbytes(len(middle)), word, word + middle)
        choices = [before + middle + after for middle in (*replacements, flipped, flipped)]
        raw = rng.choice([before, *choices])
    return raw


def damage_json(raw: bytes, rng: random.Random) -> bytes:
    """Remove some values of JSON or JSON lines, or change their type."""
    text = raw.decode("utf-8", "ignore")
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
    for _ in range(rng.randint(1, 4)):
        values = [_changed(value, rng, depth=0) for value in values]
    return "\n".join(json.dumps(value) for value in values).encode()


def _changed(value: Any, rng: random.Random, depth: int) -> Any:
    if rng.random() < 0.15 * depth or not isinstance(value, dict | list) or not value:
        return rng.choice(ODD_VALUES)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    key = rng.choice(list(value) if isinstance(value, dict) else list(range(len(value))))
    if rng.random() < 0.2:
        del copy[key]
    else:
        copy[key] = _changed(value[key], rng, depth + 1)
    return copy


def damage_cells(raw: bytes, rng: random.Random) -> bytes:
    """Replace, double, swap or remove a cell of a delimited table."""
    delimiter = b"\t" if b"\t" in raw else b","
    lines = [line.split(delimiter) for line in raw.split(b"\n")]
    line = rng.choice(lines)
    cell = rng.randrange(len(line))
    action = rng.randrange(4)
    if action == 0:
        line[cell] = rng.choice([*ODD_WORDS, b"", b" ", b"\xc3\xa9", b'{"choices": ['])
    elif action == 1:
        line.insert(cell, line[cell])
    elif action == 2:
        line[cell], line[0] = line[0], line[cell]
    else:
        del line[cell]
    return b"\n".join(map(delimiter.join, lines))


def damage_file(path: Path, rng: random.Random) -> None:
    """Damage one of the files at a path; half of the time the content of a gzipped one."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    file = rng.choice(files)
    raw = file.read_bytes()
    damages = [damage_bytes]
    if raw[:1] in (b"{", b"[") and file.suffix in (".json", ".jsonl", ".manifest"):
        damages.append(damage_json)
    elif file.suffix in (".csv", ".tsv"):
        damages.append(damage_cells)
    if raw[:2] == b"\x1f\x8b" and rng.random() < 0.5:
        file.write_bytes(gzip.compress(damage_bytes(gzip.decompress(raw), rng)))
    else:
        file.write_bytes(rng.choice(damages)(raw, rng))


def damage_summary(run: Path, rng: random.Random) -> None:
    """Damage the summary of a run."""
    damage_file(run / "summary.json", rng)


def damage_workbook(path: Path, rng: random.Random) -> None:
    """Damage the XML of a part of an Excel workbook, or the file itself."""
    if rng.random() < 0.3:
        damage_file(path, rng)
        return
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    target = rng.choice(sorted(parts))
    parts[target] = damage_bytes(parts[target], rng)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def double_key(path: Path, rng: random.Random) -> None:
    """Repeat a key of JSON inside the cells of a table, and damage the file now and then."""
    text = path.read_text(encoding="utf-8")
    pairs = re.findall(r'""[^"]+"": ?""[^"]*""', text)
    if pairs:
        pair = rng.choice(pairs)
        path.write_text(text.replace(pair, f"{pair}, {pair}", 1), encoding="utf-8")
    if rng.random() < 0.5:
        damage_file(path, rng)


def forge_store(store: Path, rng: random.Random) -> None:
    """Change numbers of a store, and recompute every checksum and the seal."""

    def change(manifest: dict[str, Any], files: dict[str, bytearray]) -> None:
        target = rng.choice([*files, "manifest"])
        if target == "manifest":
            name = rng.choice(["n_labels", "n_items", "n_annotators", "left_out", "classes"])
            manifest[name] = rng.choice([0, 1, -1, 10**12, [], None, manifest[name], ["x", "x"], 2.5])
        elif files[target]:
            files[target][rng.randrange(len(files[target]))] = rng.randrange(256)

    forge(store, change)


def forge_model(file: Path, rng: random.Random) -> None:
    """Cut, double, transpose or fill an array of a saved file, and recompute its digest."""
    header, arrays = read_arrays(file)
    name = rng.choice(sorted(arrays))
    array = np.atleast_1d(arrays[name])
    forged = [array[:0], array[:-1], np.concatenate([array, array]), array.T, array * 0 - 1]
    if array.dtype in (np.int32, np.int64):
        forged.append(np.full_like(array, 10**8))
    write_arrays(file, header, {**arrays, name: rng.choice(forged)})


# ---- readers ------------------------------------------------------------------------------------------


def fault_of(labels: ds.Annotations) -> str:
    """Return the fault of labels; empty if there is none."""
    sizes = labels.n_items, labels.n_annotators, labels.n_classes
    for column, size in zip(labels.columns, sizes, strict=True):
        if len(column) != labels.n_labels or (len(column) and not 0 <= column.min() <= column.max() < size):
            return "a code beyond its vocabulary"
    if not labels.n_labels or (np.diff(labels.item) < 0).any():
        return "rows not sorted, or none"
    for vocabulary in labels.vocabularies:
        names = [str(name) for name in vocabulary]
        if len(set(names)) < len(names) or (not all(map(str.strip, names)) and not labels.anonymous):
            return "a blank or repeated id"
    if labels.counts.sum() != labels.n_labels:
        return "counts that do not add up"
    return ""


def read_labels(path: Path, **options: Any) -> str:
    export = recognise(path)
    if export is not None and export not in FORMATS:
        return f"an unknown format {export}"
    labels, again = (ds.read_annotations(path, **options) for _ in range(2))
    return fault_of(labels) or ("" if labels.fingerprint() == again.fingerprint() else "two readings differ")


def read_side_table(votes: Path, role: str, path: Path) -> str:
    return fault_of(ds.read_annotations(votes, **{role: path}))


def read_store(expected: str, path: Path) -> str:
    return "" if ds.read_annotations(path).fingerprint() == expected else "a damaged store was opened"


def fit_store(path: Path) -> str:
    labels = ds.read_annotations(path)
    fault = fault_of(labels)
    if not fault:
        ds.DawidSkene(max_iter=2).fit(labels)
    return fault


def read_estimator(expected: dict[str, Any], path: Path) -> str:
    arrays = ds.load(path)._state()[1]
    same = all(np.array_equal(arrays[name], array) for name, array in expected.items())
    return "" if same else "a damaged file was loaded"


def use_estimator(path: Path) -> str:
    estimator = ds.load(path)
    if hasattr(estimator, "to_frame"):
        estimator.to_frame()
    if getattr(estimator, "attributes", None):
        estimator.predict_for({"age": 3})
    elif hasattr(estimator, "update"):
        estimator.update(ds.Annotations.from_arrays(["new"] * 2, ["one", "two"], estimator.classes_[:2]))
    return ""


def read_run(path: Path) -> str:
    load_run(path)
    return ""


# ---- valid inputs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A valid input, the damage done to it, and its reader."""

    name: str
    path: Path
    damage: Callable[[Path, random.Random], None]
    read: Reader


def make_cases(folder: Path) -> list[Case]:
    """Write every kind of input once."""
    cases = make_saved_cases(folder)
    for seed, write in enumerate([*EXPORTS, *EXPORTS]):
        parent = folder / f"{write.__name__}-{seed}"
        parent.mkdir()
        export = write(Crowd.from_seed(seed), parent)
        cases.append(Case(write.__name__, export.path, damage_file, partial(read_labels, **export.options)))
    for make in SAMPLES:
        (folder / f"sample-{make.__name__}").mkdir()
        sample = make(folder / f"sample-{make.__name__}")
        options = {name: sample.options[name] for name in ("format", "question") if name in sample.options}
        cases.append(Case(make.__name__, sample.path, damage_file, partial(read_labels, **options)))
    for make in (mturk_form, zooniverse, label_studio_csv):
        (folder / f"cells-{make.__name__}").mkdir()
        sample = make(folder / f"cells-{make.__name__}")
        options = {name: sample.options[name] for name in ("format", "question") if name in sample.options}
        cases.append(Case("JSON in cells", sample.path, double_key, partial(read_labels, **options)))
    labels = ds.simulate(n_items=40, n_annotators=6, n_classes=3, labels_per_item=4, seed=1).annotations
    wide = labels.to_frame().pivot(index="item", columns="annotator", values="label")
    wide.columns = [*(f"rater_{n}" for n in range(1, wide.shape[1])), "gold"]
    wide.to_csv(folder / "wide.csv")
    wide.reset_index().to_excel(folder / "wide.xlsx", index=False)
    labels.to_frame().to_excel(folder / "votes.xlsx", index=False)
    cases += [Case("wide table", folder / "wide.csv", damage_file, read_labels)] * 2
    cases += [
        Case("workbook", folder / name, damage_workbook, read_labels) for name in ("votes.xlsx", "wide.xlsx")
    ] * 2
    votes = write_table(label_table(labels), folder / "votes.csv")
    for role, key in (("items", "item"), ("annotators", "annotator"), ("gold", "item")):
        side = folder / f"{role}.csv"
        ids, classes = (labels.annotators if key == "annotator" else labels.items), labels.classes
        side.write_text(f"{key},label\n{ids[0]},{classes[0]}\n{ids[1]},{classes[1]}\nunknown,{classes[0]}\n")
        cases.append(Case(f"{role} table", side, damage_file, partial(read_side_table, votes, role)))
    return cases


def make_saved_cases(folder: Path) -> list[Case]:
    """Write every kind of file that dissensus saves once."""
    cases = []
    labels = ds.simulate(n_items=40, n_annotators=6, n_classes=3, labels_per_item=4, seed=1).annotations
    votes = write_table(label_table(labels), folder / "simulated.csv")
    ds.write_store(votes, folder / "store")
    fingerprint = ds.read_annotations(folder / "store").fingerprint()
    cases += [Case("store", folder / "store", damage_file, partial(read_store, fingerprint))] * 3
    cases += [Case("forged store", folder / "store", forge_store, fit_store)] * 4
    X, targets = np.eye(4)[[0, 1, 2, 3] * 3], np.tile(np.eye(3)[[0, 1, 2, 0]], (3, 1))
    people = {"annotator": labels.annotators, "age": [str(n) for n in range(labels.n_annotators)]}
    attributed = ds.HPGM(attributes=["age"], n_chains=2, n_sweeps=10).fit(
        labels.with_tables(annotators=people)
    )
    estimators = [model.fit(labels) for model in (ds.FMM(2), ds.DawidSkene(), ds.MajorityVote())]
    pool = ds.Pool(n_chains=2, n_sweeps=10).fit(labels)
    for estimator in (*estimators, pool, attributed, ds.text.SoftmaxRegression().fit(X, targets)):
        file = folder / f"{type(estimator).__name__}.safetensors"
        estimator.save(file)
        cases.append(Case("model", file, damage_file, partial(read_estimator, estimator._state()[1])))
        cases.append(Case("forged model", file, forge_model, use_estimator))
    write_run(fit(labels, "majority"), folder / "run", page=None)
    write_run(fit(labels, "dawid-skene"), folder / "fitted")
    cases += [Case("run", folder / name, damage_file, read_run) for name in ("run", "fitted")]
    return [*cases, Case("summary.json", folder / "fitted", damage_summary, read_run)]


def outcome(seed: int, cases: list[Case], folder: Path) -> tuple[str, str]:
    """Return how a seed ended (``refused`` or ``read``; ``broken``), and its fault, if any."""
    case = cases[seed % len(cases)]
    shutil.rmtree(folder / "damaged", ignore_errors=True)
    (folder / "damaged").mkdir()
    path = folder / "damaged" / case.path.name
    shutil.copytree(case.path, path) if case.path.is_dir() else shutil.copy(case.path, path)
    case.damage(path, random.Random(seed))
    try:
        fault = case.read(path)
    except ds.DissensusError as error:
        long = "\n" in str(error) or len(str(error)) > 1000
        return "refused", f"seed {seed} ({case.name}): not one short line: {error!r}" if long else ""
    except Exception as error:
        return "broken", f"seed {seed} ({case.name}): {type(error).__name__}: {error}"
    return "read", f"seed {seed} ({case.name}): {fault}" if fault else ""


def study(seeds: range, saved: bool = False) -> tuple[Counter[str], list[str]]:
    """Return how often each ending occurred, and all faults; ``saved``: of files that dissensus saved."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = make_saved_cases(Path(folder)) if saved else make_cases(Path(folder))
        outcomes = [outcome(seed, cases, Path(folder)) for seed in seeds]
    return Counter(ending for ending, _ in outcomes), [fault for _, fault in outcomes if fault]


def main() -> None:
    words, saved = sys.argv[1:], sys.argv[1:3] == ["--kind", "saved"]
    words = words[2:] if saved else words
    seeds = range(*map(int, words)) if words else range(10_000)
    endings, faults = study(seeds, saved)
    print(*faults, f"seeds {seeds.start} to {seeds[-1]}: {dict(endings)}, {len(faults)} faults", sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
