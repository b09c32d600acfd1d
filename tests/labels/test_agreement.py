"""Sums of pairs, intervals, and annotators compared with the others."""

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.labels import agreement
from dissensus.labels.agreement import item_groups, jackknife_interval, jackknife_margin, pair_sums


def test_pair_sums_by_enumeration() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(4, size=(30, 3))
    group, n_groups = item_groups(counts.sum(axis=1), 9)
    assert n_groups == len(np.unique(group)) == (counts.sum(axis=1) > 0).sum()
    for by_label in (False, True):
        sums = pair_sums(counts, group, n_groups, by_label=by_label, table=True)
        for g in range(n_groups):
            agreed, shares, pairs, items = np.zeros((3, 3)), np.zeros(3), 0.0, 0.0
            for row in counts[group == g]:
                labels, n = np.repeat(range(3), row), row.sum()
                v = (n if by_label else 1) if n > 1 else 0
                u = v if by_label else int(n > 0)
                for a in range(n):
                    for b in range(n):
                        if a != b:
                            agreed[labels[a], labels[b]] += v / (n * (n - 1))
                shares, pairs, items = shares + u * row / max(n, 1), pairs + v, items + u
            np.testing.assert_allclose(sums.agreed[g], agreed, atol=1e-12)
            np.testing.assert_allclose(sums.shares[g], shares, atol=1e-12)
            assert (sums.pairs[g], sums.items[g]) == pytest.approx((pairs, items))
        equal = pair_sums(counts, group, n_groups, by_label=by_label, table=False)
        np.testing.assert_allclose(equal.agreed, np.trace(sums.agreed, axis1=1, axis2=2), atol=1e-12)


def test_groups_of_items_are_of_equal_size() -> None:
    n_labels = np.r_[np.ones(1_000), np.zeros(70)].astype(int)
    group, n_groups = item_groups(n_labels, 4)
    assert n_groups == 200
    assert set(np.bincount(group[:1_000])) == {5}
    assert item_groups(n_labels, 1_000_000)[1] == 20  # large tables


def test_margin_of_a_mean() -> None:
    # the jackknife of a mean has the error s / √n; Student's quantile for 29 degrees of freedom is 2.045
    values = np.random.default_rng(0).uniform(size=30)
    without = (values.sum() - values) / 29
    margin, n = jackknife_margin(without, 0.95)
    assert (margin, n) == (pytest.approx(2.045 * values.std(ddof=1) / np.sqrt(30), rel=1e-3), 30)
    # one value of 30 decides the error: kurtosis 28.03, 60 / 27.03 = 2.2 degrees of freedom; at least 3
    values = np.r_[1.0, np.zeros(29)]
    margin, _ = jackknife_margin((values.sum() - values) / 29, 0.95)
    assert margin == pytest.approx(3.182 * values.std(ddof=1) / np.sqrt(30), rel=1e-3)
    assert np.isnan(jackknife_margin(np.array([0.1, 0.2, np.nan]), 0.95)[0])


def test_interval_of_a_coefficient() -> None:
    without = np.linspace(0.89, 0.91, 40)
    margin, _ = jackknife_margin(without, 0.95)
    low, high = jackknife_interval(0.9, without, 0.95)
    assert high == pytest.approx(min(0.9 + margin, 1))
    # on the scale of √(1 − value), √0.1 + margin / 2 √0.1
    assert np.sqrt(1 - low) == pytest.approx(np.sqrt(0.1) + margin / (2 * np.sqrt(0.1)))
    wide = np.linspace(0, 1, 40)
    margin, _ = jackknife_margin(wide, 0.95)
    assert jackknife_interval(0.5, wide, 0.95) == (pytest.approx(0.5 - margin - margin**2 / 2), 1)
    assert jackknife_interval(0.5, wide, 0.95, chance=0.0) == (0, 1)
    assert jackknife_interval(0.5, wide, 0.95, chance=0.2) == (pytest.approx(-0.25), 1)
    assert all(np.isnan(jackknife_interval(np.nan, wide, 0.95)))


def test_agreement_with_others_by_enumeration() -> None:
    rng = np.random.default_rng(3)
    item, annotator, label = rng.integers([12, 6, 3], size=(80, 3)).T  # some pairs repeat
    matches: dict[int, list[float]] = {a: [] for a in range(6)}
    for i, a, c in zip(item, annotator, label, strict=True):
        others = label[(item == i) & (annotator != a)]
        if others.size:
            matches[a].append((others == c).mean())
    # 6 is alone on item 99
    labels = ds.Annotations.from_arrays([*item, 99], [*annotator, 6], [*label, 0])
    expected = [*(np.mean(matches[a]) for a in range(6)), np.nan]
    np.testing.assert_allclose(agreement.agreement_with_others(labels), expected, rtol=1e-12)
    with pytest.raises(DataError, match="the labels do not name annotators"):
        agreement.agreement_with_others(ds.Annotations.from_counts([[1, 1]]))
