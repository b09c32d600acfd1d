"""``dissensus doctor``, and the commands that messages about missing extras name."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dissensus as ds
from cli_help import run
from dissensus import errors
from dissensus.cli import info
from dissensus.errors import MissingExtraError, install_command, require

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def installed(monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    monkeypatch.setattr(errors, "_installed_file", lambda name: files.get(name.split(".")[0], ""))


def test_the_command_fits_the_way_of_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, INSTALLER="pip\n")
    assert install_command("text") == "pip install 'dissensus[text]'"
    installed(monkeypatch, INSTALLER="uv")
    assert install_command("text") == "uv pip install 'dissensus[text]'"
    checkout = {"url": "file:///home/a%20b/dissensus", "dir_info": {"editable": True}}
    installed(monkeypatch, INSTALLER="pip", direct_url=json.dumps(checkout))
    assert install_command("text") == "pip install -e '/home/a b/dissensus[text]'"
    wheel = {"url": "file:///tmp/dissensus.whl", "archive_info": {}}
    installed(monkeypatch, INSTALLER="pip", direct_url=json.dumps(wheel))
    assert install_command("text") == "pip install 'dissensus[text]'"
    for place, command in {
        "/home/a/.local/share/pipx/venvs/dissensus": "pipx install -f 'dissensus[report]'",
        "/home/a/.local/share/uv/tools/dissensus": "uv tool install 'dissensus[report]'",
    }.items():
        monkeypatch.setattr(sys, "prefix", place)
        assert install_command("report") == command


def test_a_missing_extra_names_the_command() -> None:
    with pytest.raises(MissingExtraError) as found:
        require("no_such_package_anywhere", "cluster")
    assert str(found.value).endswith(install_command("cluster"))


def test_frames_of_pandas_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ds.MajorityVote().fit(ds.datasets.load("canteen"))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pandas is needed .*\[pandas\]"):
        model.to_frame()


def test_every_extra_for_users_is_known() -> None:
    assert set(info.EXTRAS) == set(PROJECT["optional-dependencies"]) - {"bench", "dev", "all"}


def test_info_says_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=2.0", "no-such-core>=1", "openpyxl>=3.1; extra == 'excel'"]
    lines.append('no-such-thing; extra == "arviz"')
    monkeypatch.setattr(info, "requires", lambda _: lines)
    found = json.loads(run("info", "--json").stdout)
    assert found["core"]["no-such-core"] == ""
    assert found["core"]["numpy"]
    assert found["extras"]["arviz"]["missing"] == ["no-such-thing"]
    assert found["extras"]["arviz"]["get_it_with"] == install_command("arviz")
    assert found["cores"] >= 1
    printed = run("info").stdout
    assert f"arviz: {install_command('arviz')}" in printed
    assert "missing no-such-thing" in printed


def test_info_works_where_nothing_was_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: str) -> Any:
        raise info.PackageNotFoundError

    monkeypatch.setattr(info, "requires", nobody)
    assert json.loads(run("info", "--json").stdout)["core"] == {}
