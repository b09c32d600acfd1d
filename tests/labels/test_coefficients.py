"""Coefficients of agreement against published examples, other packages and brute force."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.inter_rater import fleiss_kappa

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.labels.agreement import agreement_weights
from dissensus.labels.coefficients import INTRACLASS
from experiments.agreement import coverage, humans_of
from tests.helpers.sizes import usually

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", parts A, B and C; a dot is missing
PART_A = ["0100000010", "1110010000"]
PART_B = ["aabbdcccedda", "babbbccceddd"]
PART_C = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
# Gwet (2014), Handbook of Inter-Rater Reliability: 4 raters and 12 subjects, as part C but for the last item
GWET_2014 = ["123321412...", "1233224125..", ".33323422513", "12332441251."]
PUBLISHED_BY_GWET = {
    "ac1": 0.77544, "fleiss": 0.76117, "alpha": 0.74342, "conger": 0.76282, "brennan_prediger": 0.77273,
}  # fmt: skip
# Shrout and Fleiss (1979), table 2: six targets and four judges
JUDGES = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
# Fleiss (1971), table 1: 30 patients, six psychiatrists, five diagnoses: κ = 0.430.
SIX_PSYCHIATRISTS = """
    0 0 0 6 0  0 3 0 0 3  0 1 4 0 1  0 0 0 0 6  0 3 0 3 0  2 0 4 0 0  0 0 4 0 2  2 0 3 1 0  2 0 0 4 0
    0 0 0 0 6  1 0 0 5 0  1 1 0 4 0  0 3 3 0 0  1 0 0 5 0  0 2 0 3 1  0 0 5 0 1  3 0 0 1 2  5 1 0 0 0
    0 2 0 4 0  1 0 2 0 3  0 0 0 0 6  0 1 0 5 0  0 2 0 1 3  2 0 0 4 0  1 0 0 4 1  0 5 0 1 0  4 0 0 0 2
    0 2 0 4 0  1 0 5 0 0  0 0 0 0 6
"""
# The worked example of 14 raters in the encyclopaedia's article on Fleiss' kappa: κ = 0.210.
FOURTEEN_RATERS = """
    0 0 0 0 14   0 2 6 4 2   0 0 3 5 6   0 3 9 2 0   2 2 8 1 1
    7 7 0 0 0    3 2 6 3 0   2 5 3 2 2   6 5 2 1 0   0 2 2 3 7
"""
# irrCAC 0.4.4 on random labels with missing ones (a dot). It pins old versions of pandas and SciPy, so that
# its figures are kept here: `CAC(frame, weights=w, categories=[1.0, …], digits=16)`, method by method.
IRRCAC_NAMES = ("brennan_prediger", "conger", "fleiss", "ac2", "alpha")
FIVE_RATERS = [
    "4.3.34...2.3.12.1432422.414323.3.44.2324",
    "..3424.122..2124141432.1.2121341.4.4312.",
    "233.34.1.244412..112.222.2224334144413.1",
    "4..33.4.1314.1241.4242222222233334423.4.",
    "4.1..1.11..4.124.41..23..432133.444.3324",
]
TWO_RATERS = ["...12112223211123.3.132231323", "213.2112121.111323213112.1.1."]
IRRCAC: list[tuple[list[str], str, tuple[float, ...]]] = [
    (FIVE_RATERS, "identity",
     (0.320467836257310, 0.317733420205909, 0.311448125475049, 0.323422121914782, 0.365399991583554)),
    (FIVE_RATERS, "linear",
     (0.277192982456141, 0.277121157955809, 0.281636856678852, 0.290210069728294, 0.337274306867115)),
    (FIVE_RATERS, "quadratic",
     (0.242105263157895, 0.242150806979591, 0.258727878661074, 0.267068043367874, 0.312891476678388)),
    (FIVE_RATERS, "ordinal",
     (0.253801169590644, 0.253806351490980, 0.266282919983523, 0.274703476665212, 0.321024206689177)),
    (TWO_RATERS, "identity",
     (0.289473684210526, 0.283878988810609, 0.278318077803204, 0.294923148579413, 0.250000000000000)),
    (TWO_RATERS, "linear",
     (0.289473684210526, 0.278195488721804, 0.286078098471986, 0.302942395358475, 0.195652173913044)),
    (TWO_RATERS, "quadratic",
     (0.289473684210526, 0.272421052631578, 0.293673012318029, 0.310781278455655, 0.132812500000001)),
    (TWO_RATERS, "ordinal",
     (0.289473684210526, 0.274741878619994, 0.290654520917679, 0.307666977663136, 0.159090909090909)),
]  # fmt: skip
# The standard errors of irrCAC for five raters and the identity, from its linearised variance
IRRCAC_ERRORS = (0.073138, 0.073310, 0.075640, 0.072694, 0.072052)


def labels_of(rows: Sequence[str], label_type: Any = "nominal", classes: Any = None) -> ds.Annotations:
    """Return the labels of a table with one string per annotator and a dot where a label is missing."""
    cells = [(i, a, label) for a, row in enumerate(rows) for i, label in enumerate(row) if label != "."]
    return ds.Annotations.from_arrays(*zip(*cells, strict=True), classes=classes, label_type=label_type)


def crowd(
    seed: int, n_items: int = 40, n_annotators: int = 6, n_classes: int = 4, density: float = 0.6, **more: Any
) -> ds.Annotations:
    """Return random incomplete labels in which an item's true class is most frequent."""
    rng = np.random.default_rng(seed)
    item, annotator = np.nonzero(rng.random((n_items, n_annotators)) < density)
    truth = rng.integers(n_classes, size=n_items)
    label = np.where(rng.random(item.size) < 0.6, truth[item], rng.integers(n_classes, size=item.size))
    return ds.Annotations.from_arrays(item, annotator, label, classes=range(n_classes), **more)


def table_of(labels: ds.Annotations) -> np.ndarray:
    """Return (annotators, items) labels as numbers, NaN where missing."""
    table = np.full((labels.n_annotators, labels.n_items), np.nan)
    table[labels.annotator, labels.item] = labels.values
    return table


def values(result: Any) -> dict[str, float]:
    return {c.coefficient: c.value for c in result.coefficients}


# ---- published examples and other packages ------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "weights", "published"),
    [
        (PART_A, "identity", 0.095),
        (PART_B, "identity", 0.692),
        (PART_C, "identity", 0.743),
        (PART_C, "ordinal", 0.815),
        (PART_C, "quadratic", 0.849),
    ],
)
def test_alpha_of_published_examples(rows: list[str], weights: str, published: float) -> None:
    labels = labels_of(rows, "nominal" if weights == "identity" else "ordinal")
    assert ds.agreement(labels, "alpha", weights=weights)["alpha"].value == pytest.approx(published, abs=5e-4)
    if weights == "quadratic":  # numbers have a formula of their own
        numbers = ds.agreement(labels.with_label_type("numeric"), "alpha")["alpha"]
        assert numbers.value == pytest.approx(published, abs=5e-4)


def test_gwets_worked_example() -> None:
    result = ds.agreement(labels_of(GWET_2014), list(PUBLISHED_BY_GWET))
    assert values(result) == pytest.approx(PUBLISHED_BY_GWET, abs=6e-6)
    # observed and chance agreement of AC1 in the same table
    assert (result["ac1"].observed, result["ac1"].chance) == pytest.approx((0.81818, 0.19032), abs=6e-6)


@pytest.mark.parametrize(("table", "published"), [(FOURTEEN_RATERS, 0.210), (SIX_PSYCHIATRISTS, 0.430)])
def test_fleiss_kappa_of_published_tables(table: str, published: float) -> None:
    counts = np.array(table.split(), dtype=int).reshape(-1, 5)
    result = ds.agreement(ds.Annotations.from_counts(counts))
    assert result["fleiss"].value == pytest.approx(published, abs=5e-4)
    assert result["fleiss"].value == pytest.approx(fleiss_kappa(counts), abs=1e-12)
    uniform = fleiss_kappa(counts, method="randolph")
    assert result["brennan_prediger"].value == pytest.approx(uniform, abs=1e-12)
    assert "conger" not in values(result)
    assert result["fleiss"].n_annotators is None


def test_intraclass_correlations_of_shrout_and_fleiss() -> None:
    item, annotator = np.indices((6, 4))
    ratings = ds.Annotations.from_arrays(
        item.ravel(), annotator.ravel(), np.ravel(JUDGES), label_type="numeric"
    )
    published = dict(zip(INTRACLASS, (0.17, 0.29, 0.71, 0.44, 0.62, 0.91), strict=True))
    result = values(ds.agreement(ratings))
    assert {name: round(result[name], 2) for name in INTRACLASS} == published


@pytest.mark.parametrize(("rows", "weights", "expected"), IRRCAC)
def test_coefficients_equal_those_of_irrcac(rows: list[str], weights: str, expected: tuple[float]) -> None:
    labels = labels_of(rows, "ordinal")
    # a given matrix, because Krippendorff's ordinal weights are not Gwet's
    table = agreement_weights(labels.n_classes, weights)
    result = ds.agreement(labels, IRRCAC_NAMES, weights=table)
    np.testing.assert_allclose(list(values(result).values()), expected, atol=2e-15, rtol=1e-13)
    if weights != "ordinal":
        assert values(ds.agreement(labels, IRRCAC_NAMES, weights=weights)) == pytest.approx(values(result))


def test_intervals_have_the_errors_of_irrcac() -> None:
    result = ds.agreement(labels_of(FIVE_RATERS), [*IRRCAC_NAMES])
    margins = [c.high - c.value for c in result.coefficients]
    np.testing.assert_allclose(np.array(margins) / 2.03, IRRCAC_ERRORS, rtol=0.06)


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
@pytest.mark.parametrize("seed", range(3))
def test_cohen_equals_scikit_learn(seed: int, weights: str | None) -> None:
    labels = crowd(seed, n_annotators=2, density=2.0, label_type="ordinal")
    first, second = table_of(labels)
    expected = cohen_kappa_score(first, second, weights=weights)
    result = ds.agreement(labels, ["cohen", "conger"], weights=weights or "identity")
    assert list(values(result).values()) == pytest.approx([expected, expected], abs=1e-12)


@pytest.mark.parametrize(
    ("weights", "level"), [("identity", "nominal"), ("ordinal", "ordinal"), ("quadratic", "interval")]
)
@pytest.mark.parametrize("seed", range(4))
def test_alpha_equals_the_krippendorff_package(seed: int, weights: str, level: str) -> None:
    labels = crowd(seed, label_type="ordinal")
    expected = krippendorff.alpha(table_of(labels), level_of_measurement=level)
    assert ds.agreement(labels, "alpha", weights=weights)["alpha"].value == pytest.approx(expected, abs=1e-12)
    if level == "interval":
        numbers = ds.agreement(labels.with_label_type("numeric"))["alpha"]
        assert numbers.value == pytest.approx(expected, abs=1e-12)


def test_intraclass_correlations_equal_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(15, 1)) + rng.normal(size=(15, 5)) + rng.normal(size=5)
    item, annotator = (index.ravel() for index in np.indices(x.shape))
    frame = pd.DataFrame({"item": item, "annotator": annotator, "x": x.ravel()})
    two_way = anova_lm(ols("x ~ C(item) + C(annotator)", frame).fit())["mean_sq"]
    within = anova_lm(ols("x ~ C(item)", frame).fit())["mean_sq"]["Residual"]
    B, J, E, W, k, M = *two_way, within, 5, 15
    expected = {
        "icc1": (B - W) / (B + (k - 1) * W),
        "icc2": (B - E) / (B + (k - 1) * E + k * (J - E) / M),
        "icc3": (B - E) / (B + (k - 1) * E),
        "icc1k": (B - W) / B,
        "icc2k": (B - E) / (B + (J - E) / M),
        "icc3k": (B - E) / B,
    }
    result = ds.agreement(ds.read_annotations(frame.rename(columns={"x": "label"})), list(INTRACLASS))
    assert values(result) == pytest.approx(expected, abs=1e-12)


def test_incomplete_numbers_have_one_way_correlations_only() -> None:
    numbers = labels_of(["1355", "3.55"], "numeric")
    assert list(values(ds.agreement(numbers))) == ["alpha", "icc1", "icc1k"]
    with pytest.raises(DataError, match="icc2 needs one label by every annotator for every item; use icc1"):
        ds.agreement(numbers, "icc2")


def test_scott_is_of_the_mean_shares_of_two() -> None:
    # shares (2/3, 1/3) and (1/3, 2/3), agreement on 2 of 3 items: chance 1/2, π = (2/3 − 1/2) / (1/2)
    result = ds.agreement(labels_of(["aab", "abb"]))
    assert result["scott"].value == pytest.approx(1 / 3)
    assert result["cohen"].value == pytest.approx((2 / 3 - 4 / 9) / (5 / 9))
    assert result["percent"].value == pytest.approx(2 / 3)


def test_fleiss_kappa_with_unequal_counts_by_hand() -> None:
    # Agreement 1 and 1/3 on the items with two labels or more, mean 2/3. Shares of the first class 1, 1/3, 1:
    # chance (7/9)² + (2/9)² = 53/81. κ = (54 − 53) / (81 − 53).
    labels = ds.Annotations.from_counts([[2, 0], [1, 2], [1, 0], [0, 0]])
    fleiss = ds.agreement(labels, "fleiss")["fleiss"]
    assert fleiss.value == pytest.approx(1 / 28, rel=1e-12)
    assert fleiss.n_items == 2


# ---- properties ---------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), weights=st.sampled_from(["identity", "linear", "quadratic", "ordinal"]))
def test_order_of_annotators_items_and_classes_is_irrelevant(seed: int, weights: str) -> None:
    labels, rng = crowd(seed, n_items=12, label_type="ordinal"), np.random.default_rng(seed)
    expected = values(ds.agreement(labels, weights=weights))
    assert expected.keys() == {*ALL[:4], "ac1" if weights == "identity" else "ac2", "alpha", "icc1", "icc1k"}
    codes = rng.permutation(12)[labels.item], rng.permutation(6)[labels.annotator]
    # a scale may be reversed, unordered classes permuted
    order = rng.permutation(4) if weights == "identity" else np.arange(4)[::-1]
    other = ds.Annotations.from_arrays(*codes, order[labels.label], classes=range(4), label_type="ordinal")
    names = [name for name in expected if weights != "identity" or not name.startswith("icc")]
    found = values(ds.agreement(other, names, weights=weights))  # ICC depends on the values of the classes
    assert found == pytest.approx({name: expected[name] for name in names}, abs=1e-12, nan_ok=True)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_copies_of_all_items_change_only_the_correction_of_alpha(seed: int) -> None:
    labels = crowd(seed, n_items=12)
    twice = ds.Annotations.from_arrays(
        np.concatenate([labels.item, labels.item + 12]),
        np.tile(labels.annotator, 2), np.tile(labels.label, 2), classes=range(4),
    )  # fmt: skip
    before, after = ds.agreement(labels), ds.agreement(twice)
    for once, both in zip(before.coefficients, after.coefficients, strict=True):
        if once.coefficient == "alpha":  # 1 − α is proportional to 1 − 1/n, n labels that can be paired
            n = labels.counts.sum(axis=1)
            n = n[n > 1].sum()
            expected = 1 - (1 - once.value) * (1 - 1 / (2 * n)) / (1 - 1 / n)
            assert both.value == pytest.approx(expected, abs=1e-12)
        else:
            assert both.value == pytest.approx(once.value, abs=1e-12)
        assert both.high - both.low < once.high - once.low


def test_full_and_undefined_agreement() -> None:
    full = ds.agreement(labels_of(["aabbaabb"] * 3))
    assert set(values(full).values()) == {1}
    for c in full.coefficients:
        # eight items without disagreement have a chance of 5 % if 31.2 % of the items disagree
        assert (c.low, c.high) == pytest.approx((1 - (1 - 0.05 ** (1 / 8)) / (1 - c.chance), 1))
    one_class = values(ds.agreement(labels_of(["aaaa", "aaaa"])))
    assert one_class.pop("percent") == 1
    assert all(map(isnan, one_class.values()))
    for rows, label_type in ((["ab..", "..ab"], "nominal"), (["12..", "..12"], "numeric")):
        alone = labels_of(rows, label_type)
        for labels in (alone, alone.take_rows(np.zeros(4, dtype=bool))):
            assert all(map(isnan, values(ds.agreement(labels)).values()))
    # a declared class without labels is a class: AC1 is defined
    declared = ds.agreement(labels_of(["aaaa", "aaaa"], classes=["a", "b"]))
    assert declared["ac1"].value == declared["brennan_prediger"].value == 1
    assert isnan(declared["fleiss" if "fleiss" in values(declared) else "scott"].value)


def test_weights() -> None:
    np.testing.assert_allclose(agreement_weights(3, "linear"), [[1, 0.5, 0], [0.5, 1, 0.5], [0, 0.5, 1]])
    assert agreement_weights([1, 2, 4], "quadratic")[0].tolist() == pytest.approx([1, 8 / 9, 0])
    # pairs of classes from one to the other: 1 of 6, 3 of 6, 6 of 6
    assert agreement_weights([1, 2, 4, 9], "ordinal")[0].tolist() == pytest.approx([1, 5 / 6, 1 / 2, 0])
    assert agreement_weights(1, "linear").tolist() == [[1]]
    labels = crowd(0, label_type="ordinal")
    by_matrix = ds.agreement(labels, weights=agreement_weights(4, "linear"))
    assert by_matrix["ac2"].weights == "given"
    assert values(by_matrix) == values(ds.agreement(labels, weights="linear"))
    # ac1 has no weights, and the other coefficients have none for classes without order
    both = ds.agreement(labels, ["ac1", "ac2"])
    assert [c.weights for c in both.coefficients] == ["identity", "ordinal"]
    nominal = ds.agreement(labels.with_label_type("nominal"))
    assert {c.weights for c in nominal.coefficients} == {"identity"}
    assert values(nominal)["ac1"] == both["ac1"].value


# ---- intervals and differences ------------------------------------------------------------------------

ALL = ["percent", "brennan_prediger", "conger", "fleiss", "ac1", "ac2", "alpha", "icc1"]


def left_out(labels: ds.Annotations, **more: Any) -> list[dict[str, Any]]:
    """Return the coefficients without each item in turn, computed from the other labels alone."""
    rest = [np.arange(labels.n_items) != m for m in range(labels.n_items)]
    return [values(ds.agreement(labels[kept], ALL, **more)) for kept in rest]


def test_jackknife_leaves_out_items() -> None:
    labels = crowd(3, n_items=25, label_type="ordinal")
    # an annotator who is gone without the first item
    columns = [np.append(column, code) for column, code in zip(labels.columns, (0, 6, 3), strict=True)]
    labels = ds.Annotations.from_arrays(*columns, classes=range(4), label_type="ordinal")
    result, without = ds.agreement(labels, ALL), left_out(labels)
    for c in result.coefficients:
        x = np.array([row[c.coefficient] for row in without])
        error = np.sqrt(24 / 25 * ((x - x.mean()) ** 2).sum())
        margin = c.high - c.value
        # Student's quantile of 24 degrees of freedom or fewer
        assert 2.06 <= margin / error < 2.6
        assert c.value - c.low == pytest.approx(margin + margin**2 / (4 * (1 - c.value)), rel=1e-9)


def test_many_items_are_left_out_in_groups() -> None:
    labels = crowd(3, n_items=600)
    result, halves = ds.agreement(labels), ds.agreement(labels[::2])
    for c, half in zip(result.coefficients, halves.coefficients, strict=True):
        assert (half.high - half.low) / (c.high - c.low) == pytest.approx(np.sqrt(2), rel=0.2)


def test_bootstrap_and_jackknife_are_similar() -> None:
    labels = crowd(5, n_items=150, label_type="ordinal")
    drawn = ds.agreement(labels, ALL, n_boot=800, seed=3)
    for c, boot in zip(ds.agreement(labels, ALL).coefficients, drawn.coefficients, strict=True):
        assert boot.value == c.value
        assert (boot.high - boot.low) / (c.high - c.low) == pytest.approx(1, rel=0.15)
    one, again, other = (str(ds.agreement(labels, n_boot=50, seed=seed).rows()) for seed in (3, 3, 4))
    assert one == again != other


def test_difference_by_hand() -> None:
    labels = crowd(8, n_items=30, n_annotators=8, density=0.8, label_type="ordinal")
    groups = [labels.take_rows((labels.annotator < 4) == side) for side in (True, False)]
    result = ds.agreement(groups[0], ALL, against=groups[1])
    first, second = (values(ds.agreement(group, ALL)) for group in groups)
    pairs = list(zip(*map(left_out, groups), strict=True))
    for c in result.coefficients:
        name = c.coefficient
        assert (c.value, c.against) == pytest.approx((first[name], second[name]))
        assert c.difference == pytest.approx(first[name] - second[name])
        x = np.array([a[name] - b[name] for a, b in pairs])
        error = np.sqrt(29 / 30 * ((x - x.mean()) ** 2).sum())
        assert c.difference_low is not None
        assert c.difference is not None
        assert 2.04 <= (c.difference - c.difference_low) / error < 2.6
    assert "against" not in ds.agreement(labels).rows()[0]


def test_difference_joins_items_by_id() -> None:
    first = labels_of(["aabba", "abbba"])
    ids = ["4", "3", "2", "7"]
    second = ds.Annotations.from_arrays(ids * 2, ["x"] * 4 + ["y"] * 4, list("uvuuuvvu"))
    (row,) = ds.agreement(first, "percent", against=second).rows()
    # items 2, 3 and 4: all equal; 2 of 3 equal
    assert (row["value"], row["against"], row["n_items"]) == (1, pytest.approx(2 / 3), 3)
    with pytest.raises(DataError, match="no labelled item in common"):
        ds.agreement(first, against=second[3:])


def test_a_difference_that_is_none_is_found_rarely() -> None:
    # two groups of the same people: the interval of the difference contains 0 in about 95 of 100 crowds
    covered = 0
    for seed in range(100):
        labels = crowd(seed, n_items=60, n_annotators=6, n_classes=3, density=2.0)
        odd = labels.annotator % 2 == 1
        (row,) = ds.agreement(labels.take_rows(odd), "alpha", against=labels.take_rows(~odd)).rows()
        covered += row["difference_low"] <= 0 <= row["difference_high"]
    assert 90 <= covered <= 100


@pytest.mark.parametrize(("agreement", "name"), [(2 / 3, "alpha"), (0.93, "ac1"), (0.93, "conger")])
def test_intervals_cover(agreement: float, name: str) -> None:
    # three humans who each take the side of the item's class with this probability
    rng, covered, widths = np.random.default_rng(1), 0, []
    a = agreement**2 + (1 - agreement) ** 2
    pi = 0.7 * agreement + 0.3 * (1 - agreement)
    same = pi**2 + (1 - pi) ** 2
    truth = (a - (1 - same if name == "ac1" else same)) / (1 - (1 - same if name == "ac1" else same))
    for _ in range(300):
        side = rng.random((100, 1)) < 0.7
        votes = np.where(rng.random((100, 3)) < agreement, side, ~side)
        item, annotator = np.indices(votes.shape)
        labels = ds.Annotations.from_arrays(item.ravel(), annotator.ravel(), votes.ravel().astype(int))
        c = ds.agreement(labels, name)[name]
        covered += c.low <= truth <= c.high
        widths.append(c.high - c.low)
    assert 0.92 <= covered / 300 <= 0.98
    assert np.mean(widths) < 0.35


@pytest.mark.data
@pytest.mark.parametrize(("name", "weights"), [("mtbench", "identity"), ("lesion", "quadratic")])
def test_intervals_cover_on_real_labels(data_dir: Path, name: str, weights: str) -> None:
    humans = humans_of(data_dir, name)
    shares = coverage(humans, weights, 50, usually(200, verify=1_000))
    assert len(shares) == 6
    assert all(0.89 <= share <= 0.99 for share in shares.values())


# ---- tables of classes and pairs ----------------------------------------------------------------------


def test_coefficients_of_each_class() -> None:
    labels = crowd(2, label_type="ordinal")
    table = ds.agreement(labels, ["fleiss", "conger", "ac2"]).by_class()
    assert [row["class"] for row in table.rows()] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    for p in range(4):
        recoded = ds.Annotations.from_arrays(labels.item, labels.annotator, (labels.label == p).astype(str))
        expected = ds.agreement(recoded, ["fleiss", "conger", "ac1"])
        own = [row for row in table.rows() if row["class"] == p]
        for row, c in zip(own, expected.coefficients, strict=True):
            assert row == {"class": p, **{k: v for k, v in c._asdict().items() if v is not None}}
    with pytest.raises(DataError, match="numbers have no classes"):
        ds.agreement(labels.with_label_type("numeric")).by_class()


def test_coefficients_of_each_pair() -> None:
    labels = crowd(2, n_annotators=4, label_type="ordinal")
    table = ds.agreement(labels, weights="linear").by_pair()
    cohen = {(r["annotator"], r["other"]): r for r in table.rows() if r["coefficient"] == "cohen"}
    answers = table_of(labels)
    assert list(cohen) == [(a, b) for a in range(4) for b in range(a + 1, 4)]
    for (a, b), row in cohen.items():
        both = ~np.isnan(answers[[a, b]]).any(axis=0)
        expected = cohen_kappa_score(*answers[[a, b]][:, both], weights="linear", labels=range(4))
        assert row["value"] == pytest.approx(expected, abs=1e-12)
        assert (row["n_items"], row["n_annotators"]) == (both.sum(), 2)
    frame = table.to_frame()
    assert list(frame.columns[:4]) == ["annotator", "other", "coefficient", "weights"]
    assert "<table>" in table._repr_html_()
    assert repr(table) == f"Agreement({len(table)} rows)"
    with pytest.raises(DataError, match="do not name annotators"):
        ds.agreement(ds.Annotations.from_counts([[1, 1]])).by_pair()


def test_agreement_prints_its_values() -> None:
    # two of three items agree: observed 2/3; a and b have 3 labels each, so that Scott's chance is 1/2
    table = ds.agreement(labels_of(["aab", "abb"]), ["percent", "scott"])
    assert repr(table) == "Agreement(percent 0.67, scott 0.33)"


def test_pairs_without_common_items_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = labels_of(["aabb....", "abbb..ab", "......bb"])
    assert {(r["annotator"], r["other"]) for r in ds.agreement(labels).by_pair().rows()} == {(0, 1), (1, 2)}
    monkeypatch.setattr("dissensus.labels.coefficients.MAX_PAIRS", 1)
    assert {(r["annotator"], r["other"]) for r in ds.agreement(labels).by_pair().rows()} == {(0, 1)}
    assert len(ds.agreement(labels_of(["ab..", "..ab"])).by_pair()) == 0


# ---- sizes and errors ---------------------------------------------------------------------------------


def test_annotators_and_items_are_not_crossed() -> None:
    rng = np.random.default_rng(0)
    columns = (
        rng.integers(50_000, size=150_000),
        rng.integers(20_000, size=150_000),
        rng.integers(4, size=150_000),
    )
    labels = ds.Annotations.from_arrays(*columns)
    tracemalloc.start()
    ds.agreement(labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6  # a table of items and annotators has 10⁹ cells


def test_coefficients_of_counts_without_annotators() -> None:
    rng = np.random.default_rng(0)
    three = replace(ds.Annotations.from_counts(rng.multinomial(3, [0.2] * 5, 50)), label_type="ordinal")
    two = ds.Annotations.from_counts(rng.multinomial(2, [0.5, 0.5], 50))
    assert list(values(ds.agreement(three))) == [*ALL[:2], "fleiss", "ac2", "alpha", "icc1", "icc1k"]
    assert list(values(ds.agreement(two))) == [*ALL[:2], "fleiss", "ac1", "alpha"]
    with pytest.raises(DataError, match="do not name annotators, which icc3 needs; use icc1"):
        ds.agreement(three, "icc3")


def test_invalid_arguments() -> None:
    labels, numbers = crowd(0), crowd(0, label_type="numeric")
    words = labels_of(["abca", "abcb"])
    for arguments, message in (
        ((labels, "kapa"), "one of all, percent"),
        ((labels, ["alpha", "cohn"]), "did you mean 'cohen'"),
    ):
        with pytest.raises(ParameterError, match=message):
            ds.agreement(*arguments)
    for more, message in (
        ({"weights": "linaer"}, "did you mean 'linear'"),
        ({"weights": np.ones((3, 3))}, "symmetric 4 × 4 matrix"),
        ({"weights": np.diag([1, 1, 1, 2])}, "symmetric 4 × 4 matrix"),
        ({"interval": 95}, "'interval' parameter of agreement must be"),
        ({"n_boot": -1}, "'n_boot' parameter of agreement must be"),
    ):
        with pytest.raises(ParameterError, match=message):
            ds.agreement(labels, **more)
    for source, names, more, message in (
        (labels, "cohen", {}, "cohen is of two annotators, and there are 6; use conger, also for"),
        (labels, "icc1", {}, "icc1 is of numbers"),
        (numbers, "fleiss", {}, "fleiss is of classes"),
        (numbers, "alpha", {"weights": "linear"}, "numbers have quadratic weights"),
        (words, "alpha", {"weights": "linear"}, "linear weights need ordered classes"),
        (words, "alpha", {"weights": "masi"}, "masi weights are for sets"),
        (ds.Annotations.from_counts([[1, 1]]), "conger", {}, "which conger needs; use fleiss"),
    ):
        with pytest.raises(DataError, match=message):
            ds.agreement(source, names, **more)
    with pytest.raises(ParameterError, match="did you mean 'alpha'"):
        ds.agreement(labels)["alfa"]


def test_intervals_contain_the_value_and_reach_below_minus_one() -> None:
    # means of items nearly equal: ICC(1,k) = (BMS − WMS) / BMS is far below −1
    x = np.random.default_rng(1).normal(size=(30, 4))
    x -= 0.9 * x.mean(axis=1, keepdims=True)
    cells = [(i, a, x[i, a]) for i in range(30) for a in range(4)]
    labels = ds.Annotations.from_arrays(*zip(*cells, strict=True), label_type="numeric")
    for n_boot in (0, 50):
        result = ds.agreement(labels, n_boot=n_boot)
        assert result["icc1k"].value < -10
        for c in result.coefficients:
            assert c.low <= c.value <= c.high, c.coefficient


def test_weights_are_not_negative() -> None:
    with pytest.raises(ParameterError, match="with 1 on the diagonal and 0 to 1 elsewhere"):
        ds.agreement(labels_of(PART_B), "fleiss", weights=np.where(np.eye(5) > 0, 1.0, -1.0))
