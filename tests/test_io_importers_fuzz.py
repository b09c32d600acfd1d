"""Mangled exports, by the thousand: a clear error or good data comes out, never anything else.

Bytes are cut, flipped, doubled and replaced; in JSON, keys vanish and values change their type; in tables,
cells are blanked, moved and quoted. Each mangled export is read as its own format and as whatever it is taken
for.
"""

from __future__ import annotations

import json
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from dissensus.errors import DissensusError
from dissensus.importers import FORMATS, load_export, recognise
from dissensus.importers.gather import Gatherer
from export_samples import SAMPLES, Sample
from sizes import usually

pytestmark = pytest.mark.slow

ROUNDS = usually(60, verify=230)  # × 22 samples: above 5,000 under make verify
_ODD = (
    None,
    True,
    0,
    -1.5,
    "",
    " ",
    "x",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"a": {"b": None}},
    "\ud800",
    10**30,
    "é\u0000",
)


# ---- manglers: bytes in, bytes out --------------------------------------------------------------------


def cut(raw: bytes, random: random.Random) -> bytes:
    return raw[: random.randrange(len(raw) + 1)]


def flip(raw: bytes, random: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(random.randint(1, 5)):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def splice(raw: bytes, random: random.Random) -> bytes:
    """Remove, repeat or move a stretch."""
    start, stop = sorted(random.choices(range(len(raw) + 1), k=2))
    return random.choice([raw[:start] + raw[stop:], raw[:stop] + raw[start:], raw[start:] + raw[:start]])


def sprinkle(raw: bytes, random: random.Random) -> bytes:
    place = random.randrange(len(raw) + 1)
    piece = random.choice(
        [b'"', b",", b"\n", b"\t", b"[", b"}", b"\\", b"null", b"\xff", b"\xef\xbb\xbf", b"\x00" * 9]
    )
    return raw[:place] + piece + raw[place:]


def restructure(raw: bytes, random: random.Random) -> bytes:
    """Parse JSON or JSON lines, change some nodes, write it again."""
    text = raw.decode("utf-8", "ignore")
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
    for _ in range(random.randint(1, 4)):
        values = [_changed(value, random, depth=0) for value in values]
    return "\n".join(json.dumps(value) for value in values).encode()


def _changed(value: Any, random: random.Random, depth: int) -> Any:
    """One node somewhere below is removed or given another type."""
    if random.random() < 0.15 * depth or not isinstance(value, dict | list) or not value:
        return random.choice(_ODD)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = random.choice(keys)
    copy = dict(value) if isinstance(value, dict) else list(value)
    if random.random() < 0.2:
        del copy[key]
    else:
        copy[key] = _changed(value[key], random, depth + 1)
    return copy


def recell(raw: bytes, random: random.Random) -> bytes:
    """Blank, double or swap cells of a table."""
    delimiter = b"\t" if b"\t" in raw else b","
    lines = [line.split(delimiter) for line in raw.split(b"\n")]
    line = random.choice(lines)
    place = random.randrange(len(line))
    change = random.randrange(4)
    if change == 0:
        line[place] = random.choice(
            [b"", b'""', b'"', b" ", b"\xc3\xa9", b"9" * 40, b'{"choices": [', b"[1]", b"true"]
        )
    elif change == 1:
        line.insert(place, line[place])
    elif change == 2:
        line[place], line[0] = line[0], line[place]
    else:
        del line[place]
    return b"\n".join(map(delimiter.join, lines))


BYTES = [cut, flip, splice, sprinkle]


def mangle(file: Path, rng: random.Random) -> None:
    raw = file.read_bytes()
    ways: list[Callable[[bytes, random.Random], bytes]] = list(BYTES)
    if raw[:1] in (b"{", b"["):
        ways += [restructure] * 4
    elif file.suffix in (".csv", ".tsv"):
        ways += [recell] * 4
    file.write_bytes(rng.choice(ways)(raw, rng))


# ---- the promise --------------------------------------------------------------------------------------


def check_good(imported: Gatherer) -> None:
    table = imported.labels
    assert table.column_names == ["item", "annotator", "label"]
    assert table.num_rows > 0
    for column in table.columns:
        assert column.null_count == 0
        assert not pc.any(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py()
    assert all(number > 0 for number in imported.left_out.values())
    if imported.items is not None:
        items = imported.items["item"].to_pylist()
        assert len(items) == len(set(items))
        assert set(table["item"].to_pylist()) <= set(items)


def attempt(path: Path, options: dict[str, Any]) -> bool:
    try:
        imported = load_export(path, **options)
    except DissensusError as error:
        message = str(error)
    else:
        check_good(imported)
        return True
    assert "\n" not in message
    return False


def copy_of(sample: Sample, folder: Path) -> Path:
    copy = folder / "copy" / sample.path.name
    shutil.rmtree(folder / "copy", ignore_errors=True)
    copy.parent.mkdir()
    if sample.path.is_dir():
        shutil.copytree(sample.path, copy)
    else:
        shutil.copyfile(sample.path, copy)
    return copy


@pytest.mark.parametrize("make", SAMPLES, ids=lambda make: make.__name__)
def test_only_clear_errors_or_good_data(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    (tmp_path / "sample").mkdir()
    sample = make(tmp_path / "sample")
    rng = random.Random(zlib.crc32(make.__name__.encode()))
    n_good = 0
    for _ in range(ROUNDS):
        copy = copy_of(sample, tmp_path)
        files = [copy] if copy.is_file() else sorted(file for file in copy.rglob("*") if file.is_file())
        mangle(rng.choice(files), rng)
        found = recognise(copy)
        assert found is None or found in FORMATS
        if found not in (None, sample.format):
            attempt(copy, {})
        n_good += attempt(copy, {"format": sample.format, **sample.options})
    # Mangling that never spares a file, or never hurts one, would test nothing.
    assert usually(0, verify=1) <= n_good < ROUNDS
