"""The rooms of the package, and that imports go down only: docs/architecture.md draws them.

Every import is read from the source, those inside functions, under TYPE_CHECKING and by a module's name in a
string too.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dissensus"

# A room may import the rooms before it in this list, and no other: the core never imports an application.
ROOMS = [
    *("_version", "errors", "params", "progress", "numerics", "metrics", "labels", "tables"),
    *("engine", "compiled"),
    *("models", "evaluate"),  # the end of the core
    *("text", "large", "importers", "datasets", "annotators", "judges", "report", "workflow"),
    "decide",
    *("integrations", "cli", "__init__", "__main__"),
]
BY_NAME = re.compile(r"(dissensus(?:\.\w+)+)(?::\w+)?")  # "dissensus.models.fmm:FMM", for importlib
# The registry of models names LDL-NM, a model like the others that needs text/ and is loaded when asked for.
REGISTERED = {("models", "text"): ["models/__init__.py"]}
MOST_AT_THE_TOP = 6  # modules beside the rooms' folders


def room_of(module: str) -> str:
    """The room of ``dissensus.<room>.…``; the package itself is its ``__init__``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports_in(tree: ast.Module, path: Path) -> Iterator[tuple[int, str]]:
    """Line and room of every import of ours in a file's source."""
    package = ["dissensus", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            modules = [f"{module}.{name.name}" for name in node.names] if module == "dissensus" else [module]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and BY_NAME.fullmatch(node.value):
            modules = [node.value.partition(":")[0]]
        else:
            continue
        for module in modules:
            if module.split(".")[0] == "dissensus":
                found = room_of(module)
                yield node.lineno, found if (SOURCE / found).exists() or is_module(found) else "__init__"


def is_module(name: str) -> bool:
    """True for a module that lies at the top."""
    return (SOURCE / f"{name}.py").exists()


@cache
def between_rooms() -> dict[tuple[str, str], list[str]]:
    """Places of every import from one room of another."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        here = inside.parts[0].removesuffix(".py")
        for line, there in imports_in(ast.parse(path.read_text(encoding="utf-8")), path):
            if here != there and inside.as_posix() not in REGISTERED.get((here, there), []):
                places[here, there].append(f"{inside}:{line}")
    return places


def rooms_in_the_tree() -> set[str]:
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    return folders | {path.stem for path in SOURCE.glob("*.py")}


def test_every_room_has_its_place_in_the_list() -> None:
    assert rooms_in_the_tree() == set(ROOMS)


def test_imports_go_down_the_list() -> None:
    height = {room: place for place, room in enumerate(ROOMS)}
    up = {ways: places for ways, places in between_rooms().items() if height[ways[1]] > height[ways[0]]}
    assert not up, f"imports that go up: {up}"


def test_the_page_draws_every_room_from_the_top_down() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = page.partition("```")[2].partition("```")[0]
    drawn = re.findall(r"^(\w+)(?:/|\.py)|(?<=  )(\w+)\.py", picture, re.MULTILINE)
    rooms = [room for room in reversed(ROOMS) if not room.startswith("_")]
    assert [folder or module for folder, module in drawn] == rooms


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^ *|`|\()((?:\w+/)*\w+(?:\.\w+|/))(?=[`)\s])", text, re.MULTILINE))
    named = {name for name in named if re.search(r"/|\.(py|md|html)$", name)}
    assert len(named) > 10
    folders = (ROOT, ROOT / "docs", ROOT / "tests", SOURCE)
    assert not {name for name in named if not any((folder / name).exists() for folder in folders)}
