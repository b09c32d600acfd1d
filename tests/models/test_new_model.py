"""A new model needs one file and one line in the registry: both are added to a copy of the package."""

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
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a copy of the package that has another model, and a file of labels."""
    root = tmp_path_factory.mktemp("copied")
    models = root / "dissensus" / "models"
    shutil.copytree(Path(ds.__file__).parent, models.parent, ignore=shutil.ignore_patterns("__pycache__"))
    text = (models / "dawid_skene.py").read_text(encoding="utf-8")
    text = text.replace("class DawidSkene(", "class Copied(")
    (models / "copied.py").write_text(text, encoding="utf-8")
    registry = (models / "__init__.py").read_text(encoding="utf-8")
    assert registry.count(AFTER) == 1
    (models / "__init__.py").write_text(registry.replace(AFTER, AFTER + LINE), encoding="utf-8")
    crowd = ds.simulate(30, 12, 3, labels_per_item=5, seed=0).annotations
    crowd.to_frame().to_csv(root / "votes.csv", index=False)
    return root


def python(folder: Path, *words: object) -> str:
    """Run Python with the copied package and return its output."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dissensus(folder: Path, *words: object) -> str:
    return python(folder, "-m", "dissensus", *words)


def test_it_passes_the_contract_tests(folder: Path) -> None:
    arguments = ["tests/models/test_contract.py", "-k", "copied", "-q", "-p", "no:cacheprovider"]
    output = python(folder, "-m", "pytest", *arguments)
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None
    assert int(passed[1]) > 20


def test_the_command_line_knows_it(folder: Path) -> None:
    assert "copied" in json.loads(dissensus(folder, "info", "--json"))["models"]
    out = folder / "out"
    dissensus(folder, "fit", folder / "votes.csv", "-m", "copied", "--set", "smoothing=2", "-o", out)
    assert json.loads((out / "summary.json").read_text())["model"] == "copied"
    assert "Copied" in (out / "report.html").read_text(encoding="utf-8")
    dissensus(folder, "score", out / "labels.csv", folder / "votes.csv")
