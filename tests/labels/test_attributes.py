"""Attributes of annotators: values, ranges and codes."""

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.labels.attributes import Attribute, attribute_codes, attributes_of


def test_rare_and_missing_values_have_no_code() -> None:
    attribute = Attribute.of("region", ["north"] * 12 + ["south"] * 10 + ["west"] * 9 + [None, np.nan, ""])
    assert attribute.values == ["north", "south"]
    assert [attribute.code(cell) for cell in ("south", "west", None, "", np.nan, "north")] == [
        1,
        -1,
        -1,
        -1,
        -1,
        0,
    ]


def test_numbers_with_many_values_are_cut_into_quarters() -> None:
    attribute = Attribute.of("age", [str(age) for age in range(18, 58)])
    assert attribute.values == ["18 to 27", "28 to 37", "38 to 47", "48 to 57"]
    ages = (18, 27, "28", 47.5, 99, "unknown", "", None)
    assert list(map(attribute.code, ages)) == [0, 0, 1, 3, 3, -1, -1, -1]
    few = Attribute.of("grade", ["1", "2"] * 10)
    assert few.values == ["1", "2"]  # few numbers are values
    skewed = Attribute.of("age", ["30"] * 80 + [str(age) for age in range(31, 56)])
    assert skewed.values == ["30", "31 to 55"]


def test_codes_by_annotator() -> None:
    names = [f"a{n:02d}" for n in range(24)]
    labels = ds.Annotations.from_arrays(np.zeros(24, int), names, np.arange(24) % 2)
    people = {"annotator": names, "side": ["l", "r"] * 12, "shift": ["day"] * 20 + ["night"] * 4}
    labels = labels.with_tables(annotators=people)
    attributes = attributes_of(labels, ["side", "shift"])
    codes = attribute_codes(labels, attributes)
    assert codes[:, 0].tolist() == [0, 1] * 12
    assert codes[:, 1].tolist() == [0] * 20 + [-1] * 4
    assert (attribute_codes(ds.Annotations.from_arrays([0], ["x"], ["a"]), attributes) == -1).all()
    with pytest.raises(DataError, match="no column 'colour' in the table of annotators; it has: side, shift"):
        attributes_of(labels, ["colour"])
    with pytest.raises(DataError, match="no table of annotators"):
        attributes_of(ds.Annotations.from_arrays([0], ["x"], ["a"]), None)
