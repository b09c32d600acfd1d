"""CSV dialects, and records at the boundaries of blocks."""

import csv
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import dissensus as ds
from dissensus.tables import delimited
from tests.helpers.reading import HEADER, rows_of
from tests.helpers.sizes import usually


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_quotes_and_blank_lines(end: str, bom: bytes, write: Callable[..., Path]) -> None:
    text = 'item,annotator,label\n\na,"b ""q""","x\ny"\n"c",d"e,f g\n'.replace("\n", end)
    annotations = ds.read_annotations(write(bom + text.encode()))
    assert rows_of(annotations) == [("a", 'b "q"', f"x{end}y"), ("c", 'd"e', "f g")]


def test_a_field_may_be_longer_than_a_block(write: Callable[..., Path]) -> None:
    long = "x\n" * 1_500_000 + "y"
    annotations = ds.read_annotations(write(f'{HEADER}a,b,"{long}"\na,c,z\n'))
    assert set(annotations.classes) == {long, "z"}


@pytest.mark.parametrize("letters", ["ab x", 'ab,"x', 'ab,"\n\r x'])
def test_records_cut_by_blocks(
    letters: str, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put line breaks and quotes at every position relative to the blocks that Arrow reads."""
    rng = random.Random(letters)
    for _ in range(usually(30, verify=300)):
        monkeypatch.setattr(delimited, "_CSV_BLOCK_BYTES", rng.choice([40, 64, 100, 200]))
        fields = [
            "".join(rng.choices(letters, k=rng.randrange(9))) + "z" for _ in range(3 * rng.randrange(1, 30))
        ]
        rows = list(zip(*[iter(fields)] * 3, strict=True))
        text = io.StringIO(newline="")
        quoting, end = rng.choice(
            [(csv.QUOTE_MINIMAL, "\r\n"), (csv.QUOTE_ALL, "\r\n"), (csv.QUOTE_ALL, "\n")]
        )
        csv.writer(text, quoting=quoting, lineterminator=end).writerows([HEADER.strip().split(","), *rows])
        content = text.getvalue().removesuffix(end if rng.random() < 0.5 else "")
        expected = sorted((item, annotator, label.strip()) for item, annotator, label in rows)
        assert rows_of(ds.read_annotations(write(content))) == expected


def test_unnamed_columns_are_ignored(write: Callable[..., Path]) -> None:
    annotations = ds.read_annotations(write(",item,annotator,label,\n0,a,b,c,\n"), items=None)
    assert rows_of(annotations) == [("a", "b", "c")]
