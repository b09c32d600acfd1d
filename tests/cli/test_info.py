"""``dissensus info``, and install commands in messages about missing extras."""

import json
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dissensus as ds
from dissensus.cli import info
from dissensus.errors import MissingExtraError, install_command, require
from dissensus.models import MODELS
from tests.helpers.cli import run

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def installed(monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    distribution = SimpleNamespace(read_text=lambda name: files.get(name.split(".")[0]))
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: distribution)


def test_install_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    assert install_command("text") == "pip install 'dissensus[text]'"
    checkout = {"url": "file:///home/a%20b/dissensus", "dir_info": {"editable": True}}
    installed(monkeypatch, direct_url=json.dumps(checkout))
    folder = "/home/a b/dissensus"
    assert install_command("text") == f"pip install -c '{folder}/constraints.txt' -e '{folder}[text]'"
    wheel = {"url": "file:///tmp/dissensus.whl", "archive_info": {}}
    installed(monkeypatch, direct_url=json.dumps(wheel))
    assert install_command("text") == "pip install 'dissensus[text]'"


def test_missing_extras_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_package_anywhere", "cluster")
    assert str(caught.value).endswith(install_command("cluster"))
    model = ds.MajorityVote().fit(ds.datasets.load("canteen"))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"needs pandas, .*\[pandas\]"):
        model.to_frame()


def test_every_extra_has_a_purpose() -> None:
    assert set(info.EXTRAS) == set(PROJECT["optional-dependencies"]) - {"bench", "dev", "all"}


def test_missing_packages_and_their_install_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=2.0", "no-such-core>=1", "openpyxl>=3.1; extra == 'excel'"]
    lines.append('no-such-thing; extra == "arviz"')
    monkeypatch.setattr(info, "requires", lambda _: lines)
    report = json.loads(run("info", "--json").stdout)
    assert report["core"]["no-such-core"] == ""
    assert report["core"]["numpy"]
    assert report["extras"]["arviz"]["missing"] == ["no-such-thing"]
    assert report["extras"]["arviz"]["get_it_with"] == install_command("arviz")
    assert report["cores"] >= 1
    printed = run("info").stdout
    assert f"arviz: {install_command('arviz')}" in printed
    assert "missing no-such-thing" in printed


def test_info_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(_: str) -> Any:
        raise info.PackageNotFoundError

    monkeypatch.setattr(info, "requires", not_installed)
    assert json.loads(run("info", "--json").stdout)["core"] == {}


def test_models_and_their_settings() -> None:
    assert set(json.loads(run("info", "--json").stdout)["models"]) == {*MODELS}
    first = json.loads(run("info", "fmm", "--json").stdout)[0]
    assert (first["name"], first["default"], first["rule"]) == ("n_item_clusters", "10", "an int >= 1")
    text = run("info", "fmm").stdout
    assert "n_item_clusters" in text
    assert first["meaning"] in " ".join(text.split())
