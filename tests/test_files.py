"""Array files and the models in them: what was saved comes back, what is damaged is refused in one line."""

from __future__ import annotations

import ast
import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import dissensus as ds
from dissensus.errors import DataError, ModelFileError
from dissensus.models.base import Model
from dissensus.tables.arrays import FORMAT, HEADER_KEY, read_arrays, write_arrays
from dissensus.text.guided.files import load_model

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
    """The error's message, which must be one line that names the file and says what to do."""
    with pytest.raises(ModelFileError) as caught:
        ds.load(path)
    message = str(caught.value)
    assert message.isprintable()
    assert str(path) in message
    assert ";" in message
    return message


def everything(model: Model) -> dict[str, Any]:
    arrays = {
        name: np.asarray(value).tolist()
        for name, value in vars(model).items()
        if not name.endswith("vocabulary_")
    }
    ids = {name: getattr(model, name).tolist() for name in ("items_", "annotators_", "classes_")}
    return arrays | ids | {"type": type(model), "settings": model.get_params()}


def index_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    """A safetensors file's index, and the bytes of its arrays."""
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def with_texts(content: bytes, change: Any) -> bytes:
    """The file with the texts in its index changed, and the checksum left as it was."""
    index, rest = index_of(content)
    change(index["__metadata__"])
    text = json.dumps(index).encode()
    return struct.pack("<Q", len(text)) + text + rest


def with_header(content: bytes, change: Any) -> bytes:
    """The file with its own header changed, and the checksum left as it was."""

    def in_texts(texts: dict[str, str]) -> None:
        header = json.loads(texts[HEADER_KEY])
        change(header)
        texts[HEADER_KEY] = json.dumps(header, sort_keys=True)

    return with_texts(content, in_texts)


# ---- what comes back -----------------------------------------------------------------------------------


def test_everything_comes_back(model: ds.FMM, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    assert everything(ds.load(path)) == everything(model)
    assert everything(ds.load(str(path))) == everything(model)


def test_numpy_settings_and_infinite_scores_come_back(tmp_path: Path) -> None:
    crowd = ds.simulate(10, 5, 3, seed=0).annotations
    fitted = ds.FMM(np.int64(2), alpha=np.float64(1.5), seed=np.uint8(7)).fit(crowd)
    fitted.save(tmp_path / "m")
    loaded = ds.load(tmp_path / "m")
    assert loaded.get_params() == fitted.get_params()
    assert type(loaded.get_params()["seed"]) is int


def test_arrays_of_no_dimension_keep_it(tmp_path: Path) -> None:
    fitted = ds.EmpiricalDistribution(smoothing=0.3).fit(ds.simulate(10, 5, 3, seed=0).annotations)
    fitted.save(tmp_path / "m")
    loaded = ds.load(tmp_path / "m")
    assert isinstance(loaded, ds.EmpiricalDistribution)
    assert loaded.smoothing_.shape == ()
    assert loaded.smoothing_ == 0.3


def test_the_header_is_plain_json(content: bytes) -> None:
    texts = index_of(content)[0]["__metadata__"]
    assert texts["format"] == FORMAT
    assert texts["version"] == ds.__version__
    header = json.loads(texts[HEADER_KEY])
    assert header["class"] == "FMM"
    assert header["settings"]["n_item_clusters"] == 2


def test_saving_needs_a_place(model: ds.FMM, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a directory; name a file to write"):
        model.save(tmp_path)


def test_a_failed_save_leaves_the_old_file(model: ds.FMM, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"old")
    broken = ds.FMM(2).set_params(alpha={"a", "set"})
    vars(broken).update({name: value for name, value in vars(model).items() if name.endswith("_")})
    with pytest.raises(DataError, match="a setting of type set cannot be saved"):
        broken.save(path)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["m"]


# ---- what is refused -----------------------------------------------------------------------------------


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "absent.safetensors")
    assert "is a directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    "foreign",
    [b"", b"item,label\n1,a\n", b"\x80\x04\x95pickle", b"\x00" * 100, struct.pack("<Q", 2**60) + b"{}"],
    ids=["empty", "csv", "pickle", "zeros", "huge header"],
)
def test_what_is_no_safetensors_file(foreign: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(foreign)
    assert "not a whole safetensors file" in refusal(path)


def test_a_table_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("item,label\n1,a\n")
    line = "votes.csv: is a table, not a saved model; read_annotations reads labels"
    assert line in refusal(tmp_path / "votes.csv")


class Own(ds.FMM):
    """A model that the library does not know."""


def test_a_class_that_could_not_be_loaded_again_is_not_saved(tmp_path: Path) -> None:
    fitted = Own(2).fit(ds.simulate(20, 5, 3).annotations)
    with pytest.raises(DataError, match="Own is no class of dissensus, and its file could not be loaded"):
        fitted.save(tmp_path / "own.safetensors")


def test_another_programs_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for metadata in (None, {"format": "pt"}):
        path.write_bytes(save({"weight": np.ones((2, 2))}, metadata=metadata))
        assert "not one of dissensus" in refusal(path)


def test_another_version_of_the_format(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(with_texts(content, lambda texts: texts.update(format="99", version="7.1.0")))
    message = refusal(path)
    assert f"format 99, but this version reads {FORMAT}" in message
    assert "use dissensus 7.1.0 or fit again" in message


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update({"class": "MajorityVote"}),
        lambda header: header["settings"].update(n_item_clusters=9),
        lambda header: header["facts"].update(stopped="max_iter, twice"),
        lambda header: header.pop("settings"),
    ],
)
def test_an_altered_header(content: bytes, change: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(with_header(content, change))
    assert "has been altered since it was saved" in refusal(path)


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"sha256": ""}, {HEADER_KEY: "{not json"}], ids=str)
def test_an_altered_checksum(content: bytes, change: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(with_texts(content, lambda texts: texts.update(change)))
    assert "has been altered since it was saved" in refusal(path)


def test_a_header_rewritten_with_the_same_content_is_the_same_model(
    model: ds.FMM, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(with_header(content, lambda header: None))
    assert everything(ds.load(path)) == everything(model)


@pytest.mark.parametrize("lost", ["theta_", "trace_", "item.bytes", "class.offsets"])
def test_a_whole_file_that_lacks_an_array(lost: str, content: bytes, tmp_path: Path) -> None:
    """As another version of this library might write it: whole, and still not what this one needs."""
    path = tmp_path / "m"
    path.write_bytes(content)
    header, arrays = read_arrays(path)
    del arrays[lost]
    write_arrays(path, header, arrays)
    assert f"damaged or incomplete ('{lost}'" in refusal(path)


def test_a_learner_where_a_model_is_needed(tmp_path: Path) -> None:
    ds.text.SoftmaxRegression(0.1).fit(np.eye(3), np.eye(3)).save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="holds a SoftmaxRegression, and a model of labels is needed"):
        load_model(tmp_path / "m")


def test_arrays_are_written_as_the_safetensors_package_writes_them(tmp_path: Path) -> None:
    kinds = ["u8", "i8", "f8", "f4", "u4", "i4", "f2", "u2", "i2", "i1", "u1", "?"]
    arrays = {f"of {kind}": np.ones((2, 3), kind) for kind in kinds}
    arrays |= {"none": np.zeros(0), "one": np.array(1.5), "b": np.arange(5), "a": np.arange(3)}
    write_arrays(tmp_path / "file", {"name": "ü \n é"}, arrays)
    content = (tmp_path / "file").read_bytes()
    index, rest = index_of(content)
    about = index.pop("__metadata__")
    theirs, their_rest = index_of(save(arrays, metadata=about))
    assert theirs.pop("__metadata__") == about
    assert list(index.items()) == list(theirs.items())
    assert rest == their_rest
    assert (len(content) - len(rest)) % 8 == 0


def test_any_layout_of_an_array_comes_back_as_its_numbers(tmp_path: Path) -> None:
    square = np.arange(6.0).reshape(2, 3)
    given = {"C": square, "F": np.asfortranarray(square), "cut": square[:, ::2], "big": square.astype(">f8")}
    write_arrays(tmp_path / "file", {}, given)
    for name, array in read_arrays(tmp_path / "file")[1].items():
        np.testing.assert_array_equal(array, given[name])
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.dtype == np.float64
    with pytest.raises(DataError, match="words: an array of <U1 cannot be saved; use numbers"):
        write_arrays(tmp_path / "file", {}, {"words": np.array(["a"])})


def test_writing_makes_no_second_copy_of_the_arrays(tmp_path: Path) -> None:
    arrays = {"wide": np.zeros(2_000_000)}
    write_arrays(tmp_path / "file", {}, {"small": np.zeros(3)})
    tracemalloc.start()
    try:
        write_arrays(tmp_path / "file", {}, arrays)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_truncated_or_lengthened_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            ds.load(path)
    path.write_bytes(content + b"\x00")
    assert "not a whole safetensors file" in refusal(path)


@pytest.mark.slow
def test_no_flipped_bit_goes_unnoticed(model: ds.FMM, content: bytes, tmp_path: Path) -> None:
    path, rng = tmp_path / "m.safetensors", np.random.default_rng(0)
    expected, survivors = everything(model), 0
    for place in rng.permutation(len(content))[:400]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            loaded = ds.load(path)
        except ModelFileError:
            continue
        survivors += 1
        assert everything(loaded) == expected
    # Only white space may change and leave the model what it was.
    assert survivors < 20


def test_mangled_files_are_refused_or_the_same(model: ds.FMM, content: bytes, tmp_path: Path) -> None:
    path, rng = tmp_path / "m.safetensors", np.random.default_rng(1)
    expected = everything(model)
    for _ in range(200):
        mangled = bytearray(content)
        start, length = int(rng.integers(len(content))), int(rng.integers(1, 40))
        kind = rng.integers(4)
        if kind == 0:
            mangled[start : start + length] = rng.bytes(length)
        elif kind == 1:
            del mangled[start : start + length]
        elif kind == 2:
            mangled[start:start] = rng.bytes(length)
        else:
            mangled[start : start + length] = mangled[:length]
        path.write_bytes(mangled)
        try:
            loaded = ds.load(path)
        except ModelFileError:
            continue
        assert everything(loaded) == expected


# ---- nothing runs on loading ---------------------------------------------------------------------------

CODE_RUNNERS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
DASKS_OWN = "distributed.protocol.pickle"
UNPICKLING_CALLS = {"torch.load", "joblib.load", "pandas.read_pickle", "pd.read_pickle"}


def unpickling(source: str) -> set[str]:
    """What in a module could run code from a file: imports, calls, and NumPy's switch."""
    nodes = list(ast.walk(ast.parse(source)))
    imports = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imports |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    keywords = [node for node in nodes if isinstance(node, ast.keyword)]
    switches = {k.arg for k in keywords if k.arg == "allow_pickle" and ast.unparse(k.value) != "False"}
    by_name = {node.value for node in nodes if isinstance(node, ast.Constant) and node.value == DASKS_OWN}
    found = {name.partition(".")[0] for name in imports} & CODE_RUNNERS
    return found | (calls & UNPICKLING_CALLS) | switches | by_name | (imports & {DASKS_OWN})


def test_the_search_for_pickles_finds_them() -> None:
    assert unpickling("import pickle, numpy") == {"pickle"}
    assert unpickling("from dill.source import getsource") == {"dill"}
    assert unpickling("weights = torch.load('m.pt')") == {"torch.load"}
    assert unpickling("np.load('m.npy', allow_pickle=True)") == {"allow_pickle"}
    assert unpickling("require('distributed.protocol.pickle', 'cluster').loads(sent)") == {DASKS_OWN}
    assert unpickling("import json; json.load(file); np.load('m.npy', allow_pickle=False)") == set()


@pytest.mark.slow
def test_no_pickle_anywhere() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 10
    found = {file: words for file in files if (words := unpickling(file.read_text(encoding="utf-8")))}
    # what a driver sends its workers over the cluster's connection: no file
    assert {str(file.relative_to(SOURCE)) for file in found} == {"large/dask.py", "large/file_arrays.py"}
    assert set.union(*found.values()) <= {"pickle", DASKS_OWN}
