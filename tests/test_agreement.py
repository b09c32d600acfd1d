"""Agreement coefficients against published examples, other packages and brute force."""

from __future__ import annotations

import itertools
from math import isnan

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissensus import Annotations
from dissensus.errors import DataError, ParameterError
from dissensus.labels import agreement

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", parts A, B and C; a point: no value.
PART_A = ["0100000010", "1110010000"]
PART_B = ["aabbdcccedda", "babbbccceddd"]
PART_C = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]


def codes(rows):
    """Item, annotator and label codes of a table written one annotator a string."""
    classes = sorted(set("".join(rows)) - {"."})
    cells = [(i, a, classes.index(v)) for a, row in enumerate(rows) for i, v in enumerate(row) if v != "."]
    return tuple(np.array(column) for column in zip(*cells, strict=True))


def crowd(seed, n_items=40, n_annotators=9, n_classes=4, density=0.4):
    """Random incomplete data in which labels lean to an item's own class."""
    rng = np.random.default_rng(seed)
    item, annotator = np.nonzero(rng.random((n_items, n_annotators)) < density)
    own = rng.integers(n_classes, size=n_items)
    label = np.where(rng.random(item.size) < 0.6, own[item], rng.integers(n_classes, size=item.size))
    return item, annotator, label


def package_alpha(item, annotator, label, level):
    table = np.full((annotator.max() + 1, item.max() + 1), np.nan)
    table[annotator, item] = label
    return krippendorff.alpha(table, level_of_measurement=level)


@pytest.mark.parametrize(
    ("rows", "level", "published"),
    [
        (PART_A, "nominal", 0.095),
        (PART_B, "nominal", 0.692),
        (PART_C, "nominal", 0.743),
        (PART_C, "ordinal", 0.815),
        (PART_C, "interval", 0.849),
    ],
)
def test_alpha_of_krippendorffs_examples(rows, level, published):
    item, _, label = codes(rows)
    assert agreement.krippendorff_alpha(item, label, level=level) == pytest.approx(published, abs=5e-4)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
@pytest.mark.parametrize("seed", range(4))
def test_alpha_is_the_packages(seed, level):
    item, annotator, label = crowd(seed)
    expected = package_alpha(item, annotator, label, level)
    assert agreement.krippendorff_alpha(item, label, level=level) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=2, max_size=25))
def test_nominal_alpha_by_counting_pairs(labels):
    item, label = (np.array(column) for column in zip(*labels, strict=True))
    by_item = [label[item == i] for i in range(5) if (item == i).sum() > 1]
    values = np.concatenate([*by_item, np.empty(0)])
    # Disagreement among the pairs of an item, each item weighing as its labels, over that among all pairs.
    observed = sum(sum(a != b for a, b in itertools.permutations(own, 2)) / (len(own) - 1) for own in by_item)
    expected = sum(a != b for a, b in itertools.permutations(values, 2))
    found = agreement.krippendorff_alpha(item, label)
    if expected == 0:
        assert isnan(found)
    else:
        assert found == pytest.approx(1 - (values.size - 1) * observed / expected, rel=1e-9, abs=1e-12)


def test_blocks_do_not_matter(monkeypatch):
    item, _, label = crowd(1, n_items=300)
    whole = agreement.krippendorff_alpha(item, label), agreement.fleiss_kappa(item, label)
    monkeypatch.setattr(agreement, "_BLOCK", 50)
    parts = agreement.krippendorff_alpha(item, label), agreement.fleiss_kappa(item, label)
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


# The worked example of 14 raters in the encyclopaedia's article on Fleiss' kappa: κ = 0.210.
FOURTEEN_RATERS = """
    0 0 0 0 14   0 2 6 4 2   0 0 3 5 6   0 3 9 2 0   2 2 8 1 1
    7 7 0 0 0    3 2 6 3 0   2 5 3 2 2   6 5 2 1 0   0 2 2 3 7
"""
# Fleiss (1971), table 1: 30 patients, six psychiatrists, five diagnoses: κ = 0.430.
SIX_PSYCHIATRISTS = """
    0 0 0 6 0  0 3 0 0 3  0 1 4 0 1  0 0 0 0 6  0 3 0 3 0  2 0 4 0 0  0 0 4 0 2  2 0 3 1 0  2 0 0 4 0
    0 0 0 0 6  1 0 0 5 0  1 1 0 4 0  0 3 3 0 0  1 0 0 5 0  0 2 0 3 1  0 0 5 0 1  3 0 0 1 2  5 1 0 0 0
    0 2 0 4 0  1 0 2 0 3  0 0 0 0 6  0 1 0 5 0  0 2 0 1 3  2 0 0 4 0  1 0 0 4 1  0 5 0 1 0  4 0 0 0 2
    0 2 0 4 0  1 0 5 0 0  0 0 0 0 6
"""


@pytest.mark.parametrize(("table", "published"), [(FOURTEEN_RATERS, 0.210), (SIX_PSYCHIATRISTS, 0.430)])
def test_fleiss_kappa_of_published_tables(table, published):
    counts = np.array(table.split(), dtype=int).reshape(-1, 5)
    assert np.unique(counts.sum(axis=1)).size == 1
    assert agreement.fleiss_kappa(counts) == pytest.approx(published, abs=5e-4)


def test_fleiss_kappa_of_unequal_numbers_by_hand():
    # Agreement 1 and 1/3 on the items with two labels or more, mean 2/3. Shares of the first class 1, 1/3, 1:
    # chance (7/9)² + (2/9)² = 53/81. κ = (54 − 53) / (81 − 53).
    assert agreement.fleiss_kappa([[2, 0], [1, 2], [1, 0], [0, 0]]) == pytest.approx(1 / 28, rel=1e-12)


def test_full_and_missing_agreement():
    assert agreement.krippendorff_alpha([0, 0, 1, 1], [0, 0, 1, 1]) == 1
    assert agreement.fleiss_kappa([0, 0, 1, 1], [0, 0, 1, 1]) == 1
    for lonely in ([0, 1, 2], [0, 1, 0]), ([0, 0, 1, 1], [2, 2, 2, 2]):
        assert isnan(agreement.krippendorff_alpha(*lonely))
        assert isnan(agreement.fleiss_kappa(*lonely))


def test_every_form_of_the_labels_gives_the_same():
    item, annotator, label = crowd(5)
    annotations = Annotations.from_arrays(item, annotator, label)
    counts = annotations.counts
    for coefficient in (agreement.krippendorff_alpha, agreement.fleiss_kappa):
        expected = coefficient(item, label)
        for given_labels in ((annotations,), (counts,), (item.astype(np.int32), label.astype(np.uint8))):
            assert coefficient(*given_labels) == pytest.approx(expected, rel=1e-12)
        assert coefficient(item, label, n_classes=9) == pytest.approx(expected, rel=1e-12)


def test_agreement_with_others_by_drawing_every_other_label():
    rng = np.random.default_rng(3)
    item, annotator, label = rng.integers([12, 6, 3], size=(80, 3)).T  # some pairs repeat
    matches: dict[int, list[float]] = {a: [] for a in range(7)}
    for i, a, c in zip(item, annotator, label, strict=True):
        others = label[(item == i) & (annotator != a)]
        if others.size:
            matches[a].append((others == c).mean())
    expected = [np.mean(matches[a]) for a in range(6)]
    labels = Annotations.from_arrays(item, annotator, label)
    np.testing.assert_allclose(agreement.agreement_with_others(labels), expected, rtol=1e-12)


def test_agreement_of_an_annotator_alone_is_unknown():
    labels = Annotations.from_arrays([0, 0, 1], [0, 1, 3], [0, 0, 1])
    np.testing.assert_array_equal(agreement.agreement_with_others(labels), [1, 1, np.nan])


@pytest.mark.data
@pytest.mark.parametrize("dataset", ["varierr_nli", "hs_brexit"])
def test_alpha_of_real_labels_is_the_packages(data_dir, dataset):
    rows = np.loadtxt(
        data_dir / dataset / "annotations.csv", str, delimiter=",", skiprows=1, usecols=(0, 1, 2)
    )
    item, annotator, label = (np.unique(column, return_inverse=True)[1] for column in rows.T)
    expected = package_alpha(item, annotator, label, "nominal")
    assert agreement.krippendorff_alpha(item, label) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agreement.krippendorff_alpha([0, 1]), "give item and label codes, Annotations, or"),
        (lambda: agreement.krippendorff_alpha([[1, -1]]), "give item and label codes, Annotations, or"),
        (lambda: agreement.krippendorff_alpha([0, 1], ["a", "b"]), "label: codes must be integers from 0"),
        (lambda: agreement.krippendorff_alpha([0, -1], [0, 1]), "item: codes must be integers from 0"),
        (lambda: agreement.krippendorff_alpha([0, 1], [0]), "item, label must have one code per label"),
        (
            lambda: agreement.agreement_with_others(Annotations.from_counts([[1, 1]])),
            "the labels name no annotators",
        ),
    ],
)
def test_bad_labels_are_named(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda: agreement.krippendorff_alpha([0], [0], level="ratio"), "level"),
        (lambda: agreement.krippendorff_alpha([0], [3], n_classes=3), "n_classes"),
    ],
)
def test_bad_settings_are_named(call, parameter):
    with pytest.raises(ParameterError, match=f"The '{parameter}' parameter of"):
        call()
