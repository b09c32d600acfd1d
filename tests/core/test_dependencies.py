"""What is required is used, nothing under the GPL is shipped, and what builds a release is known."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMPORTED_AS = {"scikit-learn": "sklearn"}


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[<>=\[; ]", text)[0] for text in requirements]


def imported_by_the_core() -> set[str]:
    """Every package that a module of the core imports, inside functions too."""
    found: set[str] = set()
    for file in (ROOT / "src" / "dissensus").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


@pytest.mark.slow
def test_each_core_requirement_is_imported() -> None:
    wanted = {IMPORTED_AS.get(name, name) for name in names(PROJECT["project"]["dependencies"])}
    assert wanted - imported_by_the_core() == set()


def test_nothing_under_the_gpl_ships() -> None:
    from importlib.metadata import PackageNotFoundError, metadata

    extras = PROJECT["project"]["optional-dependencies"]
    for name in names(sum(extras.values(), PROJECT["project"]["dependencies"])):
        try:
            about = metadata(name)
        except PackageNotFoundError:
            continue
        told = [about.get("License-Expression") or "", *about.get_all("Classifier", [])]
        assert not any(re.search(r"\bA?GPL|General Public License v", text) for text in told), name


def test_versions_with_known_faults_are_left_out() -> None:
    least = dict(
        re.match(r"([\w-]+)>=([\d.]+)", text).groups()  # type: ignore[union-attr]
        for extra in PROJECT["project"]["optional-dependencies"].values()
        for text in extra
        if ">=" in text
    )
    assert tuple(map(int, least["torch"].split("."))) >= (2, 10)


def test_a_release_is_built_from_hashes_and_actions_are_pinned() -> None:
    texts = [(ROOT / name).read_text() for name in ("release.lock", "run.lock")]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    known = dict(line.split("==") for line in constraints if "==" in line)
    for line in lines:
        name, version = line.split(" ")[0].split("==")
        assert known.get(name, version) == version, line
    compiler = re.search(r'ZIGLANG = "(.*)"', (ROOT / "hatch_build.py").read_text())
    assert compiler
    assert any(line.startswith(f"{compiler[1]} ") for line in lines)
    workflows = [file.read_text() for file in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = [found for text in workflows for found in re.findall(r"uses: (\S+)", text)]
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in used)
    assert any("--require-hashes -r release.lock" in text for text in workflows)


def test_nothing_without_a_hash_runs_before_the_files_of_a_release_are_uploaded() -> None:
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    build = release[release.index("  build:") : release.index("  try:")]
    installs = [line for line in build.splitlines() if "pip" in line and "install" in line]
    assert installs
    assert all("--require-hashes" in line for line in installs)
    needed = re.search(r"  publish:\n    needs: \[(.*)\]", release)
    assert needed
    assert {"build", "try", "audit"} <= set(needed[1].split(", "))
    wanted = {re.split(r"[<>=;\[ ]", text)[0] for text in PROJECT["project"]["dependencies"]}
    locked = {line.split("==")[0].lower() for line in (ROOT / "run.lock").read_text().splitlines()}
    assert wanted <= locked
