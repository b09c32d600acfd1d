"""The check of names and English that ``make lint`` runs: it sees each sign, and passes plain code."""

from pathlib import Path

from tests.helpers.style import signs_in_code, signs_in_pages

PLAIN = 'LIMIT = 5\n\n\ndef count(labels):\n    """Count the labels."""\n    n = len(labels)\n    return n\n'
DIALECT = """LIMIT = 6  # nobody gives more


class Count:
    '''What is counted.'''

    def of(self, labels):
        found = len(labels)
        return found
"""


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / "src" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_plain_code_and_pages_have_no_signs(tmp_path: Path) -> None:
    write(tmp_path, plain=PLAIN)
    (tmp_path / "README.md").write_text("Counts labels.", encoding="utf-8")
    assert [*signs_in_code(tmp_path), *signs_in_pages(tmp_path)] == []


def test_every_sign_is_seen(tmp_path: Path) -> None:
    write(tmp_path, plain=PLAIN, dialect=DIALECT, doubled="class Count:\n    pass\n")
    (tmp_path / "README.md").write_text("A count that goes on.", encoding="utf-8")
    assert set(signs_in_code(tmp_path)) == {
        "src/dialect.py: variable found",
        "src/dialect.py: docstring 'What is counted.'",
        "src/dialect.py: 'nobody' in '# nobody gives more'",
        "src/dialect.py, src/plain.py: constant LIMIT",
        "src/dialect.py, src/doubled.py: class Count",
    }
    assert list(signs_in_pages(tmp_path)) == ["README.md: 'goes on' in 'A count that goes on.'"]
