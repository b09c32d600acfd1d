"""Exports of many labels are read in bounded memory.

Each import runs in a separate process, whose peak memory is compared with that before the import. Most of an
export is not needed: only three integers per label and the distinct ids and texts are stored.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.sizes import usually

ITEMS, PER_ITEM = usually(30_000, verify=200_000), 5
N_LABELS = ITEMS * PER_ITEM
MEGABYTE = 1 << 20
MAX_GROWTH = usually(90, verify=250) * MEGABYTE  # less than the whole export
CHILD = """
import json, resource, sys
from dissensus.importers import load_export
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
imported = load_export(sys.argv[1])
counts = imported.labels["label"].value_counts().to_pylist()
print(json.dumps({"grown": peak() - before, "format": imported.format, "n_labels": imported.labels.num_rows,
                  "n_items": len(imported.labels["item"].unique()),
                  "n_annotators": len(imported.labels["annotator"].unique()),
                  "counts": {row["values"]: row["counts"] for row in counts}}))
"""


def label(item: int, rank: int) -> str:
    return ("neg", "pos", "neutral")[(item + rank) % 3]


def annotator(item: int, rank: int) -> str:
    return f"ann{(item * 7 + rank) % 1000}"


def label_studio() -> Iterator[str]:
    yield "["
    for item in range(ITEMS):
        answers = ",".join(
            f'{{"id":{item},"completed_by":{{"email":"{annotator(item, rank)}"}},"result":[{{'
            f'"from_name":"mood","to_name":"text","type":"choices",'
            f'"value":{{"choices":["{label(item, rank)}"]}}}}]}}'
            for rank in range(PER_ITEM)
        )
        task = f'{{"id":{item},"data":{{"text":"the text of item {item}"}},"annotations":[{answers}]}}'
        yield ("," if item else "") + "\n" + task
    yield "]"


def prodigy() -> Iterator[str]:
    for item in range(ITEMS):
        for rank in range(PER_ITEM):
            yield (
                f'{{"text":"the text of item {item}","_input_hash":{item},"options":[{{"id":"neg"}}],'
                f'"accept":["{label(item, rank)}"],"answer":"accept",'
                f'"_session_id":"{annotator(item, rank)}"}}\n'
            )


def mturk() -> Iterator[str]:
    yield "HITId,HITTypeId,AssignmentId,WorkerId,AssignmentStatus,Input.text,Answer.mood.label\n"
    for item in range(ITEMS):
        for rank in range(PER_ITEM):
            yield (
                f"{item},type,{item}-{rank},{annotator(item, rank)},Approved,"
                f'"the text of item {item}",{label(item, rank)}\n'
            )


def lewidi() -> Iterator[str]:
    yield "{"
    for item in range(ITEMS):
        answers = ",".join(f'"{annotator(item, rank)}":"{label(item, rank)}"' for rank in range(PER_ITEM))
        comma = "," if item else ""
        yield (
            f'{comma}"{item}":{{"annotation task":"mood","text":"the text of item {item}","annotators":"",'
            f'"annotations":{{{answers}}},"split":"train","lang":"en"}}'
        )
    yield "}"


def phoenix() -> Iterator[str]:
    yield '{"data": ['
    for item in range(ITEMS):
        for rank in range(PER_ITEM):
            yield (
                f'{"," if item or rank else ""}{{"name":"mood","annotator_kind":"HUMAN","span_id":"{item}",'
                f'"identifier":"{annotator(item, rank)}","result":{{"label":"{label(item, rank)}"}},'
                f'"metadata":{{"text":"the text of item {item}"}}}}\n'
            )
    yield '], "next_cursor": null}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "format"),
    [
        (label_studio, "label-studio"),
        (prodigy, "prodigy"),
        (mturk, "mturk"),
        (lewidi, "lewidi"),
        (phoenix, "phoenix"),
    ],
)
def test_memory_is_bounded(write: Callable[[], Iterator[str]], format: str, tmp_path: Path) -> None:
    file = tmp_path / "large.export"
    with file.open("w", encoding="utf-8") as sink:
        sink.writelines(write())
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(file)], capture_output=True, text=True, check=True, timeout=300
    )
    result = json.loads(child.stdout)
    assert result["format"] == format
    assert (result["n_labels"], result["n_items"], result["n_annotators"]) == (N_LABELS, ITEMS, 1000)
    # Of an item's five labels, (item + rank) mod 3 gives two of one class, two of the next, one of the third.
    assert sum(result["counts"].values()) == N_LABELS
    assert all(abs(count - N_LABELS / 3) <= 2 for count in result["counts"].values())
    assert result["grown"] < MAX_GROWTH, f"grew by {result['grown'] / MEGABYTE:.0f} MB"
