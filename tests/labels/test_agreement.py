"""Agreement coefficients against published examples, other packages and brute force."""

from math import isnan

import krippendorff
import numpy as np
import pytest

from dissensus import Annotations
from dissensus.errors import DataError, ParameterError
from dissensus.labels import agreement

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", parts A, B and C; a dot is missing
PART_A = ["0100000010", "1110010000"]
PART_B = ["aabbdcccedda", "babbbccceddd"]
PART_C = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]


def codes(rows):
    """Return item, annotator and label codes of a table with one string per annotator."""
    classes = sorted(set("".join(rows)) - {"."})
    cells = [(i, a, classes.index(v)) for a, row in enumerate(rows) for i, v in enumerate(row) if v != "."]
    return tuple(np.array(column) for column in zip(*cells, strict=True))


def crowd(seed, n_items=40, n_annotators=9, n_classes=4, density=0.4):
    """Return random incomplete data in which an item's true class is most frequent."""
    rng = np.random.default_rng(seed)
    item, annotator = np.nonzero(rng.random((n_items, n_annotators)) < density)
    truth = rng.integers(n_classes, size=n_items)
    label = np.where(rng.random(item.size) < 0.6, truth[item], rng.integers(n_classes, size=item.size))
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
def test_alpha_of_published_examples(rows, level, published):
    item, _, label = codes(rows)
    assert agreement.krippendorff_alpha(item, label, level=level) == pytest.approx(published, abs=5e-4)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
@pytest.mark.parametrize("seed", range(4))
def test_alpha_matches_the_krippendorff_package(seed, level):
    item, annotator, label = crowd(seed)
    expected = package_alpha(item, annotator, label, level)
    assert agreement.krippendorff_alpha(item, label, level=level) == pytest.approx(expected, rel=1e-9)


def test_block_size_does_not_matter(monkeypatch):
    item, _, label = crowd(1, n_items=300)
    whole = agreement.krippendorff_alpha(item, label), agreement.fleiss_kappa(item, label)
    monkeypatch.setattr(agreement, "CELLS_PER_BLOCK", 50)
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


def test_fleiss_kappa_with_unequal_counts_by_hand():
    # Agreement 1 and 1/3 on the items with two labels or more, mean 2/3. Shares of the first class 1, 1/3, 1:
    # chance (7/9)² + (2/9)² = 53/81. κ = (54 − 53) / (81 − 53).
    assert agreement.fleiss_kappa([[2, 0], [1, 2], [1, 0], [0, 0]]) == pytest.approx(1 / 28, rel=1e-12)


def test_full_and_undefined_agreement():
    assert agreement.krippendorff_alpha([0, 0, 1, 1], [0, 0, 1, 1]) == 1
    assert agreement.fleiss_kappa([0, 0, 1, 1], [0, 0, 1, 1]) == 1
    for labels in ([0, 1, 2], [0, 1, 0]), ([0, 0, 1, 1], [2, 2, 2, 2]):
        assert isnan(agreement.krippendorff_alpha(*labels))
        assert isnan(agreement.fleiss_kappa(*labels))


def test_every_form_of_labels():
    item, annotator, label = crowd(5)
    annotations = Annotations.from_arrays(item, annotator, label)
    counts = annotations.counts
    for coefficient in (agreement.krippendorff_alpha, agreement.fleiss_kappa):
        expected = coefficient(item, label)
        for arguments in ((annotations,), (counts,), (item.astype(np.int32), label.astype(np.uint8))):
            assert coefficient(*arguments) == pytest.approx(expected, rel=1e-12)
        assert coefficient(item, label, n_classes=9) == pytest.approx(expected, rel=1e-12)


def test_agreement_with_others_by_enumeration():
    rng = np.random.default_rng(3)
    item, annotator, label = rng.integers([12, 6, 3], size=(80, 3)).T  # some pairs repeat
    matches: dict[int, list[float]] = {a: [] for a in range(6)}
    for i, a, c in zip(item, annotator, label, strict=True):
        others = label[(item == i) & (annotator != a)]
        if others.size:
            matches[a].append((others == c).mean())
    labels = Annotations.from_arrays([*item, 99], [*annotator, 6], [*label, 0])  # 6 is alone on item 99
    expected = [*(np.mean(matches[a]) for a in range(6)), np.nan]
    np.testing.assert_allclose(agreement.agreement_with_others(labels), expected, rtol=1e-12)


def test_invalid_arguments():
    for arguments, message in (
        (([0, 1],), "pass item and label codes, Annotations, or"),
        (([[1, -1]],), "pass item and label codes, Annotations, or"),
        (([0, 1], ["a", "b"]), "label: codes must be integers from 0"),
        (([0, -1], [0, 1]), "item: codes must be integers from 0"),
        (([0, 1], [0]), "item, label must have one code per label"),
    ):
        with pytest.raises(DataError, match=message):
            agreement.krippendorff_alpha(*arguments)
    with pytest.raises(DataError, match="the labels do not name annotators"):
        agreement.agreement_with_others(Annotations.from_counts([[1, 1]]))
    for name, value in {"level": "ratio", "n_classes": 3}.items():
        with pytest.raises(ParameterError, match=f"The '{name}' parameter of"):
            agreement.krippendorff_alpha([0], [3], **{name: value})
