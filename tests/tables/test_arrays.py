"""Files of arrays and saved models: what was saved comes back, and damaged files are refused in one line."""

import ast
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import dissensus as ds
from dissensus.errors import DataError, ModelFileError
from dissensus.models import build_model
from dissensus.models.base import Model
from dissensus.tables.arrays import FORMAT_VERSION, HEADER_KEY, read_arrays, write_arrays

SOURCE = Path(ds.__file__).parent


@pytest.fixture(scope="module")
def model() -> ds.FMM:
    crowd = ds.Annotations.from_arrays(
        ["ü 1", "ü 1", "二", "二", "a,b\n"], ["x", "y", "x", "y", "x"], ["no", "yes", "no", "no", "yes"]
    )
    return ds.FMM(2, max_iter=5).fit(crowd)


@pytest.fixture(scope="module")
def content(model: ds.FMM, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "m.safetensors"
    model.save(path)
    return path.read_bytes()


def refusal(path: Path) -> str:
    """Return the message of the error, which must be one line with the file and a remedy."""
    with pytest.raises(ModelFileError) as caught:
        ds.load(path)
    message = str(caught.value)
    assert message.isprintable()
    assert str(path) in message
    assert ";" in message
    return message


def everything(model: Model) -> dict[str, Any]:
    names = [name for name in vars(model) if not name.endswith("vocabulary_")]
    arrays = {name: np.asarray(getattr(model, name)).tolist() for name in names}
    ids = {name: getattr(model, name).tolist() for name in ("items_", "annotators_", "classes_")}
    return arrays | ids | {"type": type(model), "settings": model.get_params()}


def index_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the index of a safetensors file, and the bytes of its arrays."""
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def with_texts(content: bytes, change: Any) -> bytes:
    """Return the file with changed metadata and the old checksum."""
    index, rest = index_of(content)
    change(index["__metadata__"])
    text = json.dumps(index).encode()
    return struct.pack("<Q", len(text)) + text + rest


def with_header(content: bytes, change: Any) -> bytes:
    """Return the file with a changed header and the old checksum."""

    def in_texts(texts: dict[str, str]) -> None:
        header = json.loads(texts[HEADER_KEY])
        change(header)
        texts[HEADER_KEY] = json.dumps(header, sort_keys=True)

    return with_texts(content, in_texts)


def test_everything_comes_back(model: ds.FMM, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    assert everything(ds.load(path)) == everything(model)
    assert everything(ds.load(str(path))) == everything(model)


def test_header_is_plain_json(content: bytes) -> None:
    texts = index_of(content)[0]["__metadata__"]
    assert texts["format"] == FORMAT_VERSION
    assert texts["version"] == ds.__version__
    header = json.loads(texts[HEADER_KEY])
    assert header["class"] == "FMM"
    assert header["settings"]["n_item_clusters"] == 2


def test_missing_file_and_directory(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "absent.safetensors")
    assert "is a directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    "foreign",
    [b"", b"item,label\n1,a\n", b"\x80\x04\x95pickle", b"\x00" * 100, struct.pack("<Q", 2**60) + b"{}"],
    ids=["empty", "csv", "pickle", "zeros", "huge header"],
)
def test_files_of_other_formats(foreign: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(foreign)
    assert "not a complete safetensors file" in refusal(path)


class Own(ds.FMM):
    """A model outside the library."""


def test_class_outside_the_library_is_not_saved(tmp_path: Path) -> None:
    fitted = Own(2).fit(ds.simulate(20, 5, 3).annotations)
    with pytest.raises(DataError, match="Own is not a class of dissensus, so its file could not be loaded"):
        fitted.save(tmp_path / "own.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update({"class": "MajorityVote"}),
        lambda header: header["settings"].update(n_item_clusters=9),
        lambda header: header["facts"].update(stopped="max_iter, twice"),
        lambda header: header.pop("settings"),
    ],
)
def test_altered_header(content: bytes, change: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(with_header(content, change))
    assert "was altered after it was saved" in refusal(path)


@pytest.mark.parametrize("lost", ["theta_", "trace_", "item.bytes", "class.offsets"])
def test_file_without_a_needed_array(lost: str, content: bytes, tmp_path: Path) -> None:
    """Refuse an intact file without an array that this version needs."""
    path = tmp_path / "m"
    path.write_bytes(content)
    header, arrays = read_arrays(path)
    del arrays[lost]
    write_arrays(path, header, arrays)
    assert f"damaged or incomplete ('{lost}'" in refusal(path)


def test_files_equal_those_of_the_safetensors_package(tmp_path: Path) -> None:
    kinds = ["u8", "i8", "f8", "f4", "u4", "i4", "f2", "u2", "i2", "i1", "u1", "?"]
    arrays = {f"of {kind}": np.ones((2, 3), kind) for kind in kinds}
    arrays |= {"none": np.zeros(0), "one": np.array(1.5), "b": np.arange(5), "a": np.arange(3)}
    write_arrays(tmp_path / "file", {"name": "ü \n é"}, arrays)
    content = (tmp_path / "file").read_bytes()
    index, rest = index_of(content)
    metadata = index.pop("__metadata__")
    theirs, their_rest = index_of(save(arrays, metadata=metadata))
    assert theirs.pop("__metadata__") == metadata
    assert list(index.items()) == list(theirs.items())
    assert rest == their_rest
    assert (len(content) - len(rest)) % 8 == 0


def test_arrays_in_any_memory_layout(tmp_path: Path) -> None:
    square = np.arange(6.0).reshape(2, 3)
    saved = {"C": square, "F": np.asfortranarray(square), "cut": square[:, ::2], "big": square.astype(">f8")}
    write_arrays(tmp_path / "file", {}, saved)
    for name, array in read_arrays(tmp_path / "file")[1].items():
        np.testing.assert_array_equal(array, saved[name])
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.dtype == np.float64
    with pytest.raises(DataError, match="words: an array of <U1 cannot be saved; use numbers"):
        write_arrays(tmp_path / "file", {}, {"words": np.array(["a"])})


def test_truncated_or_lengthened_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            ds.load(path)
    path.write_bytes(content + b"\x00")
    assert "not a complete safetensors file" in refusal(path)


@pytest.mark.slow
def test_flipped_bits_are_noticed(model: ds.FMM, content: bytes, tmp_path: Path) -> None:
    path, rng = tmp_path / "m.safetensors", np.random.default_rng(0)
    expected, survivors = everything(model), 0
    for position in rng.permutation(len(content))[:400]:
        flipped = bytearray(content)
        flipped[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            loaded = ds.load(path)
        except ModelFileError:
            continue
        survivors += 1
        assert everything(loaded) == expected
    # Only a change of white space leaves the model the same.
    assert survivors < 20


def tensors(path: Path, entries: dict[str, Any], data: bytes, about: dict[str, str] | None = None) -> Path:
    index = json.dumps({"__metadata__": about or {"dissensus": "{}", "format": "3"}, **entries}).encode()
    path.write_bytes(len(index).to_bytes(8, "little") + index + data)
    return path


@pytest.mark.parametrize("shape", [[2**62], [2**31, 2**31], [-1], [3], [0, 10**18]])
def test_forged_shapes(shape: list[int], tmp_path: Path) -> None:
    entry = {"dtype": "F64", "shape": shape, "data_offsets": [0, 16]}
    with pytest.raises(ModelFileError):
        ds.load(tensors(tmp_path / "m.safetensors", {"a": entry}, bytes(16)))


@pytest.mark.parametrize("model", ["majority", "fmm", "dawid-skene", "pgm"])
def test_forged_sizes_with_a_valid_checksum(model: str, tmp_path: Path) -> None:
    labels = ds.simulate(20, 5, 3, seed=0).annotations
    build_model(model, {}, seed=0).fit(labels).save(tmp_path / "m.safetensors")
    header, arrays = read_arrays(tmp_path / "m.safetensors")
    for name in ("label_distributions_", "n_labels_", "item.offsets", "item.bytes", "class.offsets"):
        # Text that no id uses does no harm.
        longer = [] if name == "item.bytes" else [np.tile(arrays[name], 2)]
        for forged in (arrays[name][:-1], arrays[name][:0], *longer):
            write_arrays(tmp_path / "f.safetensors", header, {**arrays, name: forged})
            with pytest.raises(ModelFileError, match="damaged or incomplete"):
                ds.load(tmp_path / "f.safetensors")


def test_invalid_headers(tmp_path: Path) -> None:
    for text in ("[1]", "[" * 100_000, "{", "null"):
        about = {
            "dissensus": text,
            "format": FORMAT_VERSION,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
        with pytest.raises(ModelFileError, match="header is damaged"):
            ds.load(tensors(tmp_path / "m.safetensors", {}, b"", about))


# ---- loading runs no code -----------------------------------------------------------------------------

CODE_RUNNERS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
DASK_PICKLE = "distributed.protocol.pickle"
UNPICKLING_CALLS = {"torch.load", "joblib.load", "pandas.read_pickle", "pd.read_pickle"}


def unpickling(source: str) -> set[str]:
    """Return imports, calls and NumPy settings of a module that could run code from a file."""
    nodes = list(ast.walk(ast.parse(source)))
    imports = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imports |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    keywords = [node for node in nodes if isinstance(node, ast.keyword)]
    switches = {k.arg for k in keywords if k.arg == "allow_pickle" and ast.unparse(k.value) != "False"}
    by_name = {node.value for node in nodes if isinstance(node, ast.Constant) and node.value == DASK_PICKLE}
    found = {name.partition(".")[0] for name in imports} & CODE_RUNNERS
    return found | (calls & UNPICKLING_CALLS) | switches | by_name | (imports & {DASK_PICKLE})


def test_no_pickle_anywhere() -> None:
    assert unpickling("import pickle, numpy; from dill.source import x") == {"pickle", "dill"}
    assert unpickling("torch.load('m.pt'); np.load(f, allow_pickle=True)") == {"torch.load", "allow_pickle"}
    assert unpickling("import json; np.load('m.npy', allow_pickle=False)") == set()
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 10
    found = {file: words for file in files if (words := unpickling(file.read_text(encoding="utf-8")))}
    # Messages of a driver to its workers over the cluster's connection, not files.
    assert {str(file.relative_to(SOURCE)) for file in found} == {"large/dask.py", "large/file_arrays.py"}
    assert set.union(*found.values()) <= {"pickle", DASK_PICKLE}
