"""The documentation site: valid links, documented names, generated pages and versions."""

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
from tests.helpers.docs import DOCS
from website import check, declared, gallery, hooks, versions

ROOT = Path(__file__).resolve().parents[2]


def test_public_names_and_parameters_are_documented() -> None:
    assert check.undocumented() == []


def test_undocumented_parameters_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(first: int, second: int) -> None:
        """Something with ``first``."""

    monkeypatch.setattr(check, "public_things", lambda: [("plain", plain, [plain.__doc__])])
    assert check.undocumented() == ["plain(second)"]
    docstring = "Parameters\n----------\nfirst, second\n    Numbers."
    monkeypatch.setattr(check, "public_things", lambda: [("plain", plain, [docstring])])
    assert check.undocumented() == []


@pytest.mark.parametrize("name", MODELS)
def test_settings_of_models_are_documented(name: str) -> None:
    documentation = inspect.getdoc(model_class(name)) or ""
    for setting in inspect.signature(model_class(name)).parameters:
        assert re.search(rf"^{setting} : .+, default .+\n    \S", documentation, re.M)


def test_reference_has_declared_settings_and_methods() -> None:
    extensions = griffe.load_extensions(declared.Declared)
    models = griffe.load("dissensus.models", search_paths=[ROOT / "src"], extensions=extensions)
    assert "n_item_clusters : an int >= 1, default 10" in models["fmm.FMM"].docstring.value
    assert models["fmm.FMM.__init__"].parameters["max_iter"].default == "500"
    assert models["base.Model.get_params"].docstring.value.startswith("Return the settings by name")


def test_reference_has_every_public_name() -> None:
    text = "\n".join(hooks.api_pages().values())
    assert len(re.findall(r"^::: ", text, re.M)) >= len(hooks.public_names())


def test_reference_has_every_command_and_option() -> None:
    page = hooks.commands_page()
    from tests.helpers.cli import COMMANDS

    for name, command in COMMANDS.items():
        assert f"## dissensus {name}\n" in page
        options = [option for parameter in command.params for option in parameter.opts]
        assert [option for option in options if option[0] == "-" and f"`{option}`" not in page] == []


def test_formulas_become_mathml_or_an_error() -> None:
    html = hooks._with_formulas(r"Where $p_k$ is a share: $$ \sum_k p_k = 1 \tag{1.1} $$")
    assert html.count("<math") == 2
    assert "(1.1)" in html
    assert "$" not in html
    with pytest.raises(ValueError, match="does not support nosuchthing"):
        hooks.mathml(r"\nosuchthing x", "inline")


def test_links_between_pages_are_valid() -> None:
    """Check links to pages; the build below also checks links to headings."""
    broken = {
        f"{page.relative_to(DOCS)}: {target}"
        for page in DOCS.rglob("*.md")
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    }
    # The build generates the pages of the reference.
    assert {line for line in broken if ": reference/" not in line} == set()


@pytest.mark.verify
def test_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("*.html"))) > 40
    assert check.fetched(tmp_path) == []
    assert "<math" in (tmp_path / "mathematics.html").read_text(encoding="utf-8")
    (tmp_path / "index.html").write_text('<script src="https://elsewhere.org/a.js"></script>')
    assert len(check.fetched(tmp_path)) == 1


def test_versions_are_listed_and_kept(tmp_path: Path) -> None:
    site, pages = tmp_path / "site", tmp_path / "pages"
    site.mkdir()
    for version in ("0.9.0", "0.10.0", "1.0.0rc1", "0.10.0"):
        (site / "index.html").write_text(f"pages of {version}")
        versions.add(site, pages, version)
    listed = json.loads((pages / "versions.json").read_text())
    assert [entry["version"] for entry in listed] == ["1.0.0rc1", "0.10.0", "0.9.0"]
    assert [entry["version"] for entry in listed if "latest" in entry["aliases"]] == ["0.10.0"]
    assert "url=0.10.0/index.html" in (pages / "index.html").read_text()
    assert (pages / "0.9.0" / "index.html").read_text() == "pages of 0.9.0"
    versions.add(site, pages, "1.0.0")
    assert versions.published(pages) == ["1.0.0", "1.0.0rc1", "0.10.0", "0.9.0"]
    assert versions.this_version() == dissensus.__version__


def test_gallery_shows_all_plots() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"images/gallery/([\w-]+\.svg)", page))
    assert shown == {file.name for file in (DOCS / "images" / "gallery").glob("*.svg")}
    assert len(shown) >= 5


@pytest.mark.verify
def test_gallery_draws_its_plots(tmp_path: Path) -> None:
    plots = gallery.main(tmp_path)
    assert len(plots) >= 5
    assert {file.name for file in tmp_path.glob("*.svg")} == set(plots)
