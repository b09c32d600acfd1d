"""All importers: their documented formats, recognition, and messages."""

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissensus.errors import DataError, ParameterError
from dissensus.importers import FORMATS, load_export, recognise
from dissensus.importers.read import read_annotations
from dissensus.tables.write import write_table
from tests.helpers.export_samples import SAMPLES, Sample, item_texts, task, triples, written
from tests.helpers.reading import rows_of, write_file

by_name = pytest.mark.parametrize("make", SAMPLES, ids=lambda make: make.__name__)
FOLDERS = {
    "potato",
    "doccano_folder",
    "doccano_zip",
    "inspect_eval",
    "huggingface_arrow",
    "huggingface_parquet",
}
FILES = [make for make in SAMPLES if make.__name__ not in FOLDERS]


@by_name
def test_documented_format(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    sample = make(tmp_path)
    imported = load_export(sample.path, **sample.options)
    assert triples(imported) == sample.labels
    assert item_texts(imported) == sample.texts
    assert imported.skipped == sample.left_out
    assert (imported.format, imported.question) == (sample.format, sample.question)
    assert imported.labels.schema.types == [pa.dictionary(pa.int32(), pa.string())] * 3
    is_named = sample.options.get("format") is not None
    assert recognise(sample.path) == (None if is_named else sample.format)


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_gzipped_and_renamed_export(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    sample = make(tmp_path)
    other = tmp_path / "anything.bin"
    other.write_bytes(gzip.compress(b"\xef\xbb\xbf" + sample.path.read_bytes()))
    assert triples(load_export(other, **sample.options)) == sample.labels


@by_name
def test_read_annotations_of_every_export(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    sample = make(tmp_path)
    options = {name: sample.options[name] for name in ("format", "question") if name in sample.options}
    if "item_column" in sample.options:
        options |= {"item": sample.options["item_column"], "format": sample.format}
    read = read_annotations(sample.path, **options)
    assert sorted(rows_of(read)) == sorted(sample.labels)
    assert set(sample.texts) <= set(read.items)
    notes = " ".join(read.notes)
    for reason, number in sample.left_out.items():
        noun = next(word for word in reason.split() if word.endswith("s"))
        words = reason if number > 1 else reason.replace(noun, noun[:-1])
        assert f"{number} {words} left out" in notes


@pytest.mark.parametrize("name", ["labels.csv", "labels.csv.gz", "labels.jsonl", "labels.parquet"])
@by_name
def test_written_tables_agree_with_the_export(
    make: Callable[[Path], Sample], name: str, tmp_path: Path
) -> None:
    sample = make(tmp_path)
    imported = load_export(sample.path, **sample.options)
    labels = write_table(imported.labels, tmp_path / "out" / name)
    items = (
        None if imported.items is None else write_table(imported.items, tmp_path / "out" / f"items-{name}")
    )
    read = read_annotations(labels, items=items)
    assert sorted(rows_of(read)) == sorted(sample.labels)
    if any(sample.texts.values()):
        texts = dict(zip(read.items, read.item_column("text"), strict=True))
        assert {item: text or None for item, text in texts.items()} == sample.texts


def test_every_format_has_a_sample(tmp_path: Path) -> None:
    formats = set()
    for number, make in enumerate(SAMPLES):
        (tmp_path / str(number)).mkdir()
        formats.add(make(tmp_path / str(number)).format)
    assert formats == set(FORMATS)


def test_every_format_and_option_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "importing.md").read_text(encoding="utf-8").lower()
    for format in FORMATS.values():
        assert format.title.partition(" (")[0].split()[0].lower() in page
    for option in ("--format", "--question", "--item-column", "text_column", "--keep-rejected"):
        assert option in page


def test_files_that_are_not_exports(tmp_path: Path) -> None:
    file = tmp_path / "labels.any"
    for text in (
        "task,worker,label\nt1,w1,cat\nt1,w2,dog\n",
        'item\tannotator\tlabel\ttext\na\tx\tyes\t"a, b"\n',
        '{"item": "a", "annotator": "x", "label": "yes"}\n{"item": "b", "annotator": "x", "label": "no"}\n',
        '[{"item": "a", "annotator": "x", "label": "yes"}]',
        "item,r1\n1,yes\n",
        "item,neg,pos\n1,2,3\n2,0,5\n",
        *("", "{", "[", "{}", "[[[[", '{"a":', "\x00\x01\x02,,,", '"unclosed'),
    ):
        file.write_text(text)
        assert recognise(file) is None
    pq.write_table(pa.table({"item": ["a"], "annotator": ["x"], "label": ["y"]}), tmp_path / "labels.parquet")
    with zipfile.ZipFile(tmp_path / "sheet.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"x" * 1000)[:20])
    (tmp_path / "empty").mkdir()
    for name in ("labels.parquet", "sheet.xlsx", "broken.gz", "empty", "absent.json"):
        assert recognise(tmp_path / name) is None


@pytest.mark.data
def test_real_tables_are_not_exports(data_dir: Path) -> None:
    files = sorted(data_dir.glob("*/annotations.csv*"))
    assert len(files) == 34
    assert [file for file in files if recognise(file) is not None] == []


def test_missing_annotator(tmp_path: Path) -> None:
    cases = {
        "a.json": [task(), task(completed_by=None)],
        "b.json": [task(), task(completed_by={"first_name": "Zoë"})],
        "c.jsonl": '\n{"text":"x","_input_hash":1,"answer":"accept","accept":["a"],"_annotator_id":null}',
        "d.csv": "HITId,WorkerId,AssignmentStatus,Answer.mood\nH,A,Approved,neg\nH, ,Approved,neg\n",
        "e.csv": "_unit_id,_golden,_worker_id,mood,mood_gold\n7,false,1,neg,\n7,false,,pos,\n",
        "f.tsv": "INPUT:t\tOUTPUT:r\tASSIGNMENT:task_id\tASSIGNMENT:worker_id\na\tx\tt1\tw\na\ty\tt1\t\n",
    }
    locations = {"a": "record 2", "b": "record 2", "c": "line 2", "d": "line 3", "e": "line 3", "f": "line 3"}
    for name, value in cases.items():
        file = written(tmp_path, value, name)
        with pytest.raises(
            DataError, match=rf"{name} {locations[name[0]]}: the annotator is missing; fill it in"
        ):
            load_export(file)


def test_missing_item(tmp_path: Path) -> None:
    tasks = [task(), task()]
    del tasks[1]["id"]
    with pytest.raises(DataError, match=r"export\.json record 2: the item has no id"):
        load_export(written(tmp_path, tasks))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'[{"_input_hash": 1, "answer": "ignore"}, {"text": ', r"line 1: not valid JSON"),
        (b'{"_input_hash": 1, "answer": "ignore"}\n{"text": \n', r"line \d: not valid JSON"),
        (b"[1, 2]", "record 1: is not a JSON object but 1"),
        (b'[{"_input_hash": 1, "answer": "ignore"}] trailing', "text after the end of the array"),
        (b'[{"id": "\xff\xfe"}]', "line 1: byte 0xff is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"id": ' + b"9" * 5000 + b"}]", "a number too long"),
        (gzip.compress(b"[{}]" * 100, mtime=0)[:-12], "gzip file is damaged"),
    ],
)
def test_broken_json(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"export\.json.*{message}"):
        load_export(file, format="prodigy")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("HITId,WorkerId,Answer.a\n", "a header but no rows"),
        ("HITId,WorkerId,WorkerId,Answer.a\nH,A,A,x\n", "line 1: the column 'WorkerId' occurs twice"),
        ("HITId,WorkerId,Answer.a\nH,A,x\nH,A\n", "line 3: 2 fields but the header has 3"),
        ('HITId,WorkerId,Answer.a\nH,A,"x\n', "line 2: not a valid table"),
        ("HITId,Answer.a\nH,x\n", "has no column 'WorkerId'"),
    ],
)
def test_broken_tables(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_export(written(tmp_path, content, "batch.csv"), format="mturk")


def test_repeated_keys(tmp_path: Path) -> None:
    doubled = json.dumps([task()]).replace('"id": 7', '"id": 7, "id": 8')
    with pytest.raises(DataError, match="the key 'id' occurs twice"):
        load_export(write_file(tmp_path / "export.json", doubled), format="label-studio")
    entry = '{"text": "t", "annotations": {"a": "1"}, "annotators": "a", "number of annotations": 1}'
    with pytest.raises(DataError, match="the key '1' occurs twice"):
        load_export(write_file(tmp_path / "lewidi.json", f'{{"1": {entry}, "1": {entry}}}'), format="lewidi")


def test_unknown_settings_and_files(tmp_path: Path) -> None:
    file = written(tmp_path, [task()])
    with pytest.raises(ParameterError, match="did you mean 'label-studio'"):
        load_export(file, format="labelstudio")
    with pytest.raises(DataError, match="no such file"):
        load_export(tmp_path / "absent.json")
    with pytest.raises(DataError, match="no such file"):
        load_export(tmp_path / "absent.json", format="prodigy")
    with pytest.raises(DataError, match="not recognised as an export; name the format with format="):
        load_export(written(tmp_path, "a,b\n1,2\n", "x.csv"))
    with pytest.raises(DataError, match="no text column 'txt'; did you mean 'text'"):
        load_export(file, text_column="txt")
