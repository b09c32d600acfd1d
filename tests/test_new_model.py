"""A new model is one file and one registry line: a newcomer's copy of the package gets both, and no more."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dissensus as ds

pytestmark = pytest.mark.slow

AFTER = '    "dawid-skene": "dissensus.models.dawid_skene:DawidSkene",\n'
LINE = '    "copied": "dissensus.models.copied:Copied",\n'
TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, a model's file and a line more in it, and some labels."""
    folder = tmp_path_factory.mktemp("newcomer")
    models = folder / "dissensus" / "models"
    shutil.copytree(Path(ds.__file__).parent, models.parent, ignore=shutil.ignore_patterns("__pycache__"))
    text = (models / "dawid_skene.py").read_text(encoding="utf-8")
    text = text[: text.index("class OneCoin(")].replace("class DawidSkene(", "class Copied(")
    (models / "copied.py").write_text(text, encoding="utf-8")
    registry = (models / "__init__.py").read_text(encoding="utf-8")
    assert registry.count(AFTER) == 1
    (models / "__init__.py").write_text(registry.replace(AFTER, AFTER + LINE), encoding="utf-8")
    crowd = ds.simulate(30, 12, 3, labels_per_item=5, seed=0).annotations
    with (folder / "votes.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "annotator", "label"])
        columns = crowd.items[crowd.item], crowd.annotators[crowd.annotator], crowd.classes[crowd.label]
        rows.writerows(zip(*columns, strict=True))
    return folder


def python(place: Path, *words: object) -> str:
    """What a fresh interpreter prints that has the newcomer's package."""
    environment = os.environ | {"PYTHONPATH": str(place)}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dissensus(place: Path, *words: object) -> str:
    return python(place, "-m", "dissensus", *words)


def test_it_keeps_every_promise_of_the_contract(place: Path) -> None:
    wanted = ["tests/test_model_contract.py", "-k", "copied", "-q", "-p", "no:cacheprovider"]
    said = python(place, "-m", "pytest", *wanted)
    found = re.search(r"(\d+) passed", said)
    assert found is not None
    assert int(found[1]) > 20


def test_the_command_line_fits_it_writes_its_files_and_a_page(place: Path) -> None:
    assert "copied" in json.loads(dissensus(place, "info", "--json"))["models"]
    out = place / "out"
    dissensus(place, "fit", place / "votes.csv", "-m", "copied", "--set", "smoothing=2", "-o", out)
    assert json.loads((out / "summary.json").read_text())["model"] == "copied"
    assert "Copied" in (out / "report.html").read_text(encoding="utf-8")
    dissensus(place, "score", out / "labels.csv", place / "votes.csv")


def test_it_is_a_name_of_the_library_saved_loaded_and_in_its_place(place: Path) -> None:
    program = """
import sys
import dissensus as ds
from dissensus.models import simplicity
labels = ds.read_annotations(sys.argv[1])
model = ds.Copied().fit(labels)
model.save(sys.argv[2])
loaded = ds.load(sys.argv[2])
assert type(loaded) is ds.Copied
assert (loaded.label_distributions_ == ds.DawidSkene().fit(labels).label_distributions_).all()
assert simplicity(ds.DawidSkene()) < simplicity(model) < simplicity(ds.IBCC())
"""
    python(place, "-c", program, place / "votes.csv", place / "model.safetensors")
