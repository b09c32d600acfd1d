"""Check names and English for the signs that make code and pages hard to read; ``make lint`` runs it.

    python tests/helpers/style.py

Checked are docstrings that cannot be read alone, words of a private dialect, variables without a meaning, and
names that stand for two constants or two classes. A file with examples of such words needs a line in
``ALLOWED`` with the reason.
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("src", "tests", "experiments", "benchmarks", "reproduction", "website")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")
BEGINNINGS = ("What", "The same", "Likewise", "Of ", "So ", "Where ", "How ", "Whether", "Those", "It ")
DIALECT = re.compile(
    r"\b(foresee\w*|go(?:es)? on|somebody|nobody|whoever|everybody|(?:is|are) told|stands? beside|"
    r"held against|so many|part ways|heard once|heed\w*)\b",
    re.IGNORECASE,
)
VAGUE = {"found", "known", "own", "told", "one", "some", "place", "given", "what", "kept", "held"}
# Files in which the words of the dialect are allowed, and why.
ALLOWED = {
    "experiments/bundled_sets.py": "texts of the bundled data sets",
    "src/dissensus/tables/pairs_and_sets.py": "a word that users write for all annotators",
    "tests/core/test_style.py": "examples of the signs",
    "tests/helpers/export_samples.py": "texts of sample exports",
    "tests/helpers/report_sample.py": "texts of a sample crowd",
    "tests/helpers/style.py": "the list itself",
    "tests/models/test_bradley_terry.py": "a label that no annotator may give",
}


def main() -> None:
    """Print every sign that is not allowed, and exit with 1 if there is any."""
    signs = [*signs_in_code(ROOT), *signs_in_pages(ROOT)]
    print(*signs, sep="\n" if signs else "", end="\n" if signs else "")
    sys.exit(bool(signs))


def signs_in_code(root: Path) -> Iterator[str]:
    """Yield the signs in Python files; names have to be unique in the package alone."""
    constants, classes = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for path in sorted(path for folder in CODE for path in (root / folder).rglob("*.py")):
        where, text = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        if where.startswith("src"):
            yield from (f"{where}: variable {name}" for name in assigned(tree) & VAGUE)
            for name in {node.id for node in targets(tree.body) if node.id.isupper() and len(node.id) > 1}:
                constants[name].append(where)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    classes[node.name].append(where)
        for line in docstrings(tree):
            if line.startswith(BEGINNINGS):
                yield f"{where}: docstring {line!r}"
        if where not in ALLOWED:
            yield from (
                f"{where}: {word!r} in {line!r}" for line in prose(text) for word in DIALECT.findall(line)
            )
    for kind, names in (("constant", constants), ("class", classes)):
        yield from (f"{', '.join(p)}: {kind} {name}" for name, p in sorted(names.items()) if len(p) > 1)


def signs_in_pages(root: Path) -> Iterator[str]:
    """Yield the words of the dialect on the pages."""
    for page in sorted(page for pattern in PAGES for page in root.glob(pattern)):
        for line in page.read_text(encoding="utf-8").splitlines():
            yield from (f"{page.relative_to(root)}: {word!r} in {line!r}" for word in DIALECT.findall(line))


def targets(nodes: list[ast.stmt]) -> Iterator[ast.Name]:
    """Yield the names that plain assignments of a module bind."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from (target for target in node.targets if isinstance(target, ast.Name))


def assigned(tree: ast.AST) -> set[str]:
    """Return every name that is bound anywhere."""
    return {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Yield the first line of the docstring of every function and class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            if text:
                yield text.splitlines()[0]


def prose(text: str) -> Iterator[str]:
    """Yield the comments and strings of a file, line by line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from token.string.splitlines()


if __name__ == "__main__":
    main()
