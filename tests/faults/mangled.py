"""Mangled inputs by the thousand: a reader or loader gives a clear error, or data that are sound.

Each seed takes a sound input (tables in every format, exports of every tool, stores, saved models, learners
and runs), mangles it, and reads it. Sound is: for labels, what models rely on (codes in their vocabularies,
rows in order, no blank id), and the same again at a second reading; for stores and saved files, whose bytes
are all under checksums, the very content that was written. A share of the stores and models is mangled with
its checksums computed anew, as somebody would who means harm; then what opens must at least fit a model.

    PYTHONPATH=tests python -m faults.mangled [FIRST STOP]      seeds 0 to 9,999 by default
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as ds
from dissensus.large.store import MANIFEST
from dissensus.tables.arrays import read_arrays, write_arrays
from dissensus.workflow.refine import fit
from dissensus.workflow.runs import load_run, write_run
from faults.exports import FORMATS, Crowd

Read = Callable[[Path], str]  # a path in; what was wrong out, or nothing

ODD_WORDS = [
    b"null", b"NaN", b"-0", b"1e999", b'""', b"{}", b"[]", b"[[[[", b'{"a":', b"\xff\xfe", b"\x00", b"item",
    b"\xed\xa0\x80", b",,,,", b'"', b"\r", b"\n\n", b"=1+1", b"9" * 50, b"\\ud800", b"label", b"PAR1",
    b"PK\x03\x04",
]  # fmt: skip


# ---- manglers -----------------------------------------------------------------------------------------


def mangle(raw: bytes, chance: random.Random) -> bytes:
    """Bytes cut, dropped, doubled, flipped, replaced or turned round; up to three times."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(raw) + 1)
        to = min(len(raw), at + chance.choice([1, 4, 40, 400]))
        before, here, after = raw[:at], raw[at:to], raw[to:]
        raw = chance.choice(MANGLERS)(before, here, after, chance)
    return raw


def _flip(before: bytes, here: bytes, after: bytes, chance: random.Random) -> bytes:
    bit = 1 << chance.randrange(8)
    return before + bytes([here[0] ^ bit]) + here[1:] + after if here else before + after


MANGLERS: tuple[Callable[[bytes, bytes, bytes, random.Random], bytes], ...] = (
    lambda before, here, after, chance: before,
    lambda before, here, after, chance: before + after,
    lambda before, here, after, chance: before + here + here + after,
    lambda before, here, after, chance: before + here[::-1] + after,
    lambda before, here, after, chance: before + chance.randbytes(len(here)) + after,
    lambda before, here, after, chance: before + chance.choice(ODD_WORDS) + after,
    lambda before, here, after, chance: before + chance.choice(ODD_WORDS) + here + after,
    _flip,
    _flip,
)


def mangle_a_file(place: Path, chance: random.Random) -> None:
    """One of the files at a place; gzipped ones within, half of the time."""
    files = sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
    file = chance.choice(files)
    raw = file.read_bytes()
    if raw[:2] == b"\x1f\x8b" and chance.random() < 0.5:
        file.write_bytes(gzip.compress(mangle(gzip.decompress(raw), chance)))
    else:
        file.write_bytes(mangle(raw, chance))


def forge_store(store: Path, chance: random.Random) -> None:
    """Numbers of a store changed, and every checksum and the seal computed anew."""
    manifest = json.loads((store / MANIFEST).read_bytes())
    manifest.pop("seal")
    files = {name: bytearray((store / name).read_bytes()) for name in manifest["files"]}
    what = chance.choice([*files, "manifest"])
    if what == "manifest":
        name = chance.choice(["n_labels", "n_items", "n_annotators", "left_out", "classes"])
        manifest[name] = chance.choice([0, 1, -1, 10**12, [], None, manifest[name], ["x", "x"], 2.5])
    elif files[what]:
        at = chance.randrange(len(files[what]))
        files[what][at] = chance.randrange(256)
    for name, content in files.items():
        (store / name).write_bytes(content)
        manifest["files"][name] |= {"bytes": len(content), "crc32": zlib.crc32(content)}
    seal = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (store / MANIFEST).write_text(json.dumps(manifest | {"seal": seal}))


def forge_model(file: Path, chance: random.Random) -> None:
    """An array of a saved file cut, doubled, turned or filled with one number, under a digest that fits."""
    header, arrays = read_arrays(file)
    name = chance.choice(sorted(arrays))
    array = np.atleast_1d(arrays[name])
    forged = chance.choice([array[:0], array[:-1], np.concatenate([array, array]), array.T, array * 0 - 1])
    write_arrays(file, header, {**arrays, name: forged})


# ---- readers ------------------------------------------------------------------------------------------


def sound(labels: ds.Annotations) -> str:
    """What is wrong with labels; empty where nothing is."""
    sizes = labels.n_items, labels.n_annotators, labels.n_classes
    for column, size in zip(labels.columns, sizes, strict=True):
        if len(column) != labels.n_labels or (len(column) and not 0 <= column.min() <= column.max() < size):
            return "a code beyond its vocabulary"
    if not labels.n_labels or (np.diff(labels.item) < 0).any():
        return "rows out of order, or none"
    ids = [*labels.items, *labels.annotators, *labels.classes]
    if any(str(name).strip() == "" for name in ids) and not labels.anonymous:
        return "a blank id"
    if labels.counts.sum() != labels.n_labels:
        return "counts that do not add up"
    return ""


def read_labels(path: Path) -> str:
    labels = ds.read_annotations(path, layout="wide" if path.name == "wide.csv" else None)
    again = ds.read_annotations(path, layout="wide" if path.name == "wide.csv" else None)
    return sound(labels) or ("" if labels.fingerprint() == again.fingerprint() else "two readings differ")


def whole_store(expected: str) -> Read:
    def read(path: Path) -> str:
        found = ds.read_annotations(path).fingerprint()
        return "" if found == expected else "a damaged store was opened"

    return read


def usable_store(path: Path) -> str:
    labels = ds.read_annotations(path)
    fault = sound(labels)
    if not fault:
        ds.DawidSkene(max_iter=2).fit(labels)
    return fault


def whole_file(expected: Any) -> Read:
    def read(path: Path) -> str:
        found = ds.load(path)
        same = all(np.array_equal(found._state()[1][name], array) for name, array in expected.items())
        return "" if same else "a damaged file was loaded"

    return read


def usable_model(path: Path) -> str:
    found = ds.load(path)
    if hasattr(found, "to_frame"):
        found.to_frame()
    return ""


def whole_run(path: Path) -> str:
    load_run(path)
    return ""


# ---- sound inputs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A sound input, how it is mangled, and how it is read."""

    name: str
    path: Path
    mangle: Callable[[Path, random.Random], None]
    read: Read


def cases(folder: Path) -> list[Case]:
    """Every kind of input, made once."""
    made = []
    for n, write in enumerate(FORMATS):
        for seed in (n, n + len(FORMATS)):
            place = folder / f"{write.__name__}-{seed}"
            place.mkdir()
            path = write(Crowd.drawn(seed), place).path
            if write.__name__ == "wide":
                path = path.rename(path.with_name("wide.csv"))
            made.append(Case(write.__name__, path, mangle_a_file, read_labels))
    known = ds.simulate(n_items=40, n_annotators=6, n_classes=3, labels_per_item=4, seed=1).annotations
    from dissensus.tables.results import label_table
    from dissensus.tables.write import write_table

    write_table(label_table(known), folder / "votes.csv")
    ds.write_store(folder / "votes.csv", folder / "store")
    packed = ds.read_annotations(folder / "store")
    made += [Case("store", folder / "store", mangle_a_file, whole_store(packed.fingerprint()))] * 3
    made += [Case("forged store", folder / "store", forge_store, usable_store)] * 4
    for name, model in {
        "fmm": ds.FMM(2),
        "dawid-skene": ds.DawidSkene(),
        "majority": ds.MajorityVote(),
    }.items():
        fitted = model.fit(known)
        file = folder / f"{name}.safetensors"
        fitted.save(file)
        made.append(Case("model", file, mangle_a_file, whole_file(fitted._state()[1])))
        made.append(Case("forged model", file, forge_model, usable_model))
    X, targets = np.eye(4)[[0, 1, 2, 3] * 3], np.tile(np.eye(3)[[0, 1, 2, 0]], (3, 1))
    learner, file = ds.text.SoftmaxRegression().fit(X, targets), folder / "learner.safetensors"
    learner.save(file)
    made.append(Case("learner", file, mangle_a_file, whole_file(learner._state()[1])))
    made.append(Case("forged learner", file, forge_model, usable_model))
    write_run(fit(known, "majority", test_size=0), folder / "run", page=None)
    made.append(Case("run", folder / "run", mangle_a_file, whole_run))
    return made


def outcome(seed: int, known: list[Case], folder: Path) -> tuple[str, str]:
    """What came of a seed (``refused``, ``read``), and what was wrong, if anything."""
    case = known[seed % len(known)]
    place = folder / "mangled"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    path = place / case.path.name
    shutil.copytree(case.path, path) if case.path.is_dir() else shutil.copy(case.path, path)
    chance = random.Random(seed)
    case.mangle(path, chance)
    try:
        fault = case.read(path)
    except ds.DissensusError as error:
        many = "\n" in str(error)
        return "refused", f"seed {seed} ({case.name}): more than one line: {error!r}" if many else ""
    except Exception as error:
        return "broken", f"seed {seed} ({case.name}): {type(error).__name__}: {error}"
    # A mangled run whose summary still fits, or a byte that no checksum covers, may be what it was.
    return "read", f"seed {seed} ({case.name}): {fault}" if fault else ""


def study(seeds: range) -> tuple[Counter[str], list[str]]:
    """How the seeds ended, and every fault."""
    ended: Counter[str] = Counter()
    faults = []
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = cases(Path(place))
        for seed in seeds:
            how, fault = outcome(seed, known, Path(place))
            ended[how] += 1
            if fault:
                faults.append(fault)
    return ended, faults


def main() -> None:
    seeds = range(*map(int, sys.argv[1:])) if sys.argv[1:] else range(10_000)
    ended, faults = study(seeds)
    print(*faults, f"seeds {seeds.start} to {seeds[-1]}: {dict(ended)}, {len(faults)} faults", sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
