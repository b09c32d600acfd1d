"""The documentation site builds without a broken link; every public name and parameter is explained."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import griffe
import pytest

import dissensus
from dissensus.models import MODELS, model_class
from docs_help import DOCS
from website import check, declared, gallery, hooks, versions

ROOT = Path(__file__).resolve().parents[1]


def test_every_public_name_and_parameter_is_explained() -> None:
    assert check.undocumented() == []


def test_the_check_sees_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(first: int, second: int) -> None:
        """Something with ``first``."""

    monkeypatch.setattr(check, "public_things", lambda: [("plain", plain, [plain.__doc__])])
    assert check.undocumented() == ["plain(second)"]
    told = "Parameters\n----------\nfirst, second\n    Numbers."
    monkeypatch.setattr(check, "public_things", lambda: [("plain", plain, [told])])
    assert check.undocumented() == []


@pytest.mark.parametrize("name", MODELS)
def test_every_setting_of_a_model_has_its_meaning(name: str) -> None:
    documentation = inspect.getdoc(model_class(name)) or ""
    for setting in inspect.signature(model_class(name)).parameters:
        assert re.search(rf"^{setting} : .+, default .+\n    \S", documentation, re.M)


def test_declared_settings_and_borrowed_methods_are_in_the_reference() -> None:
    extensions = griffe.load_extensions(declared.Declared)
    models = griffe.load("dissensus.models", search_paths=[ROOT / "src"], extensions=extensions)
    assert "n_item_clusters : an int >= 1, default 10" in models["fmm.FMM"].docstring.value
    assert models["fmm.FMM.__init__"].parameters["max_iter"].default == "500"
    assert models["base.Model.get_params"].docstring.value.startswith("The settings by name")


def test_every_public_name_has_its_place_in_the_reference() -> None:
    text = "\n".join(hooks.api_pages().values())
    assert len(re.findall(r"^::: ", text, re.M)) >= len(hooks.public_names())


def test_every_command_is_in_the_reference() -> None:
    page = hooks.commands_page()
    from cli_help import COMMANDS

    for name, command in COMMANDS.items():
        assert f"## dissensus {name}\n" in page
        assert all(f"`{option}`" in page for one in command.params for option in one.opts if option[0] == "-")


def test_formulas_become_mathml_or_an_error() -> None:
    made = hooks._with_formulas(r"Where $p_k$ is a share: $$ \sum_k p_k = 1 \tag{1.1} $$")
    assert made.count("<math") == 2
    assert "(1.1)" in made
    assert "$" not in made
    with pytest.raises(ValueError, match="does not know nosuchthing"):
        hooks.mathml(r"\nosuchthing x", "inline")


def test_links_between_pages_lead_somewhere() -> None:
    """The small version of the build below, which follows links to headings too."""
    broken = {
        f"{page.relative_to(DOCS)}: {target}"
        for page in DOCS.rglob("*.md")
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    }
    # The pages of the reference are made by the build.
    assert {line for line in broken if ": reference/" not in line} == set()


@pytest.mark.verify
def test_the_site_builds_without_a_broken_link_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("*.html"))) > 40
    assert check.fetched(tmp_path) == []
    assert "<math" in (tmp_path / "mathematics.html").read_text(encoding="utf-8")
    (tmp_path / "index.html").write_text('<script src="https://elsewhere.org/a.js"></script>')
    assert len(check.fetched(tmp_path)) == 1


def test_each_version_keeps_its_pages(tmp_path: Path) -> None:
    site, pages = tmp_path / "site", tmp_path / "pages"
    site.mkdir()
    for version in ("0.9.0", "0.10.0", "1.0.0rc1", "0.10.0"):
        (site / "index.html").write_text(f"pages of {version}")
        versions.add(site, pages, version)
    listed = json.loads((pages / "versions.json").read_text())
    assert [one["version"] for one in listed] == ["1.0.0rc1", "0.10.0", "0.9.0"]
    assert [one["version"] for one in listed if "latest" in one["aliases"]] == ["0.10.0"]
    assert "url=0.10.0/index.html" in (pages / "index.html").read_text()
    assert (pages / "0.9.0" / "index.html").read_text() == "pages of 0.9.0"
    versions.add(site, pages, "1.0.0")
    assert versions.published(pages) == ["1.0.0", "1.0.0rc1", "0.10.0", "0.9.0"]
    assert versions.this_version() == dissensus.__version__


def test_the_pictures_of_the_gallery_are_there() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"images/gallery/([\w-]+\.svg)", page))
    assert shown == {file.name for file in (DOCS / "images" / "gallery").glob("*.svg")}
    assert len(shown) >= 5


@pytest.mark.verify
def test_the_gallery_makes_its_pictures(tmp_path: Path) -> None:
    pictures = gallery.main(tmp_path)
    assert len(pictures) >= 5
    assert {file.name for file in tmp_path.glob("*.svg")} == set(pictures)
    assert {file.name for file in (DOCS / "images" / "gallery").glob("*.svg")} == set(pictures)
