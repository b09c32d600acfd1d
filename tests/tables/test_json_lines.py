"""JSON values cut anywhere, nested too deeply, or not objects."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.tables.json_lines import JsonStream
from tests.helpers.cli import failure
from tests.helpers.reading import ROWS, as_csv, write_file


@pytest.mark.parametrize("depth", [101, 950, 5000, 200_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_deep_nesting_is_refused(depth: int, pair: str, tmp_path: Path) -> None:
    opening, closing = ("[", "]") if pair == "[]" else ('{"a":', "}")
    deep = opening * depth + "1" + closing * depth
    contents = {
        "table.jsonl": f'{{"item": 1, "annotator": 2, "label": "x", "more": {deep}}}\n',
        "studio.json": f'[{{"id": 1, "data": {{"text": {deep}}}, "annotations": []}}]',
        "truth.jsonl": json.dumps(
            {"source": "t", "job": {"annotationsFromAllWorkers": [
                {"workerId": "a", "annotationData": {"content": deep}}]}}
        ),
    }  # fmt: skip
    for name, content in contents.items():
        file = tmp_path / name
        file.write_text(content)
        with pytest.raises(DataError, match=r"nested|not valid JSON"):
            ds.read_annotations(file)
    assert "Traceback" not in failure("describe", tmp_path / "studio.json")


@pytest.mark.parametrize("content", ['{"item": 1}{"item": 2}', '{"item": 1} {"item": 2}\n', "[1][2]"])
def test_two_values_on_one_line(content: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"two values on one line|text after the end of the array|not a JSON"):
        ds.read_annotations(write_file(tmp_path / "votes.jsonl", content))


def test_lists_in_item_tables_stay_json(write: Callable[..., Path]) -> None:
    lines = '{"item": "q1", "tags": ["a", {"b": 1.50}], "n": 2}\n{"item": "q2", "late": true}\n'
    annotations = ds.read_annotations(write(as_csv(ROWS)), items=write(lines, "items.jsonl"))
    assert list(annotations.item_column("tags")) == ['["a", {"b": 1.5}]', None, None]
    assert list(annotations.item_column("n")) == ["2", None, None]
    assert list(annotations.item_column("late")) == [None, "true", None]


def test_keys_must_be_text(write: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=r"items\.jsonl: a key is not valid text"):
        ds.read_annotations(write(as_csv(ROWS)), items=write('{"item": "q1", "\\ud800": 1}', "items.jsonl"))


class OneCharacterAtATime(io.StringIO):
    """File that is read one character at a time, so that every value is cut."""

    def read(self, size: int | None = -1, /) -> str:
        return super().read(min(1, size or 1) if size != -1 else -1)


def test_values_cut_anywhere() -> None:
    values = [12345, -1.5e-7, True, None, 'a\\"b\n\u00e9😀', [], {}, {"a": [1, {"b": "]}"}]}, 1e300, False]
    text = json.dumps(values, indent=1)
    stream = JsonStream(OneCharacterAtATime(text), "t")
    assert list(stream.elements()) == values
    assert stream.peek() == ""
    assert stream.line == text.count("\n") + 1


@pytest.mark.parametrize("text", ['{"a": [1, 2], "b": 34}', '{"a": 1}\n', "[1, 23]", "[1, 23]  ", "[4.5]"])
def test_number_near_the_end_of_the_text(text: str) -> None:
    """A number may continue in text that is not read yet; here there is none."""
    stream, expected = JsonStream(io.StringIO(text), "t"), json.loads(text)
    if text.startswith("{"):
        assert {key: stream.value() for key in stream.members()} == expected
    else:
        assert list(stream.elements()) == expected
    assert stream.peek() == ""


def test_broken_value_stops_reading() -> None:
    text = io.StringIO('{"a": [1, 2,, 3]}' + " " * 10_000_000)
    with pytest.raises(DataError, match="line 1"):
        JsonStream(text, "t").value()
    assert text.tell() < 5_000_000
