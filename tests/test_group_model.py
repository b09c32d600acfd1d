"""The small model behind the verdicts: its equations by hand, its evidence and posteriors by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.annotators.group_model import (
    CARELESS,
    CONSTANT,
    LEANING,
    LEAST_CONTESTED,
    TORN,
    Fit,
    Fitting,
    ItemTypes,
    People,
    Ways,
    chances,
    deviations,
    learned,
)
from dissensus.execution.threads import Local
from dissensus.models.pgm.propagation import Statistics

SHARES = np.array([0.5, 0.3, 0.2])
PAIRS = np.array([[0, 1], [1, 0]])


@pytest.fixture
def types():
    return ItemTypes.of(SHARES, PAIRS, group=True)


@pytest.fixture
def people():
    return People.of(SHARES, group=True)


@pytest.fixture
def ways(types, people):
    rng = np.random.default_rng(0)
    theta = rng.dirichlet([1, 1, 1], size=3) * 0.4 + 0.6 * np.eye(3)
    noise = np.array([0.2, 0.2, 0.6])
    return Ways(theta, noise, rng.dirichlet(np.ones(len(types.crowd))), rng.dirichlet(people.expected() * 50))


def by_hand(types, people, ways, k, column, y):
    """Equations (1), (2) and (3) for one type of item, one type of annotator and one label."""
    J = len(people.usual)
    if column >= 2 * J:
        return people.spam[column - 2 * J, y]
    made_of = (types.crowd if column < J else types.group)[k]
    manner = column % J
    careless = manner < len(CARELESS)
    blind = ways.noise[y] if careless else people.leaning[manner, y]
    eps = CARELESS[manner] if careless else LEANING
    return (1 - eps) * sum(made_of[c] * ways.theta[c, y] for c in range(3)) + eps * blind


def test_types_of_items(types):
    clear, torn, contested = types.crowd[:3], types.crowd[3:5], types.crowd[5:]
    np.testing.assert_array_equal(clear, np.eye(3))
    np.testing.assert_allclose(torn, [[TORN, 1 - TORN, 0], [1 - TORN, TORN, 0]], rtol=1e-12)
    np.testing.assert_array_equal(contested, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(types.group[5:], [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(types.group[:5], types.crowd[:5])
    assert types.contested.tolist() == [False] * 5 + [True] * 2
    assert types.expected.sum() == pytest.approx(1, rel=1e-12)


def test_spam_strategies(people):
    np.testing.assert_allclose(people.spam[0], SHARES, rtol=1e-12)
    np.testing.assert_allclose(people.spam[1], 1 / 3, rtol=1e-12)
    np.testing.assert_allclose(people.spam[3], [0.05 * 5 / 7, CONSTANT, 0.05 * 2 / 7], rtol=1e-12)


def test_chances_are_the_three_equations(types, people, ways):
    table = chances(types, people, ways)
    K, L, P = table.shape
    expected = [
        [[by_hand(types, people, ways, k, column, y) for y in range(P)] for column in range(L)]
        for k in range(K)
    ]
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    np.testing.assert_allclose(table.sum(axis=2), 1, rtol=1e-12)


def settled(annotations, types, people, ways):
    """Beliefs after enough rounds with the parameters held."""
    fitting = Fitting(annotations, Local())
    fit = fitting.started(types, people, ways, np.tile(ways.omega, (annotations.n_annotators, 1)))
    for _ in range(6):
        fit = fitting.propagated(fit)
    return fitting, fit


def test_evidence_and_posteriors_on_a_tree_are_those_of_enumeration(types, people, ways):
    # Items 0 and 1 share annotator 1: no loop, so messages are exact.
    item, annotator, label = [0, 0, 1, 1], [0, 1, 1, 2], [0, 1, 2, 2]
    annotations = Annotations.from_arrays(item, annotator, label, classes=[0, 1, 2])
    fitting, fit = settled(annotations, types, people, ways)
    table = chances(types, people, ways)
    K, L, _ = table.shape
    joint = np.zeros((K, K, L, L, L))
    for k0, k1 in itertools.product(range(K), repeat=2):
        a = table[k0, :, 0] * ways.omega
        b = table[k0, :, 1] * table[k1, :, 2] * ways.omega
        c = table[k1, :, 2] * ways.omega
        joint[k0, k1] = ways.psi[k0] * ways.psi[k1] * np.einsum("a,b,c->abc", a, b, c)
    assert fitting.graph.evidence(fit.beliefs) == pytest.approx(np.log(joint.sum()), rel=1e-9)
    posterior = joint / joint.sum()
    np.testing.assert_allclose(fit.beliefs.w[0], posterior.sum(axis=(1, 2, 3, 4)), rtol=1e-8)
    columns = [posterior.sum(axis=tuple(x for x in range(5) if x != n + 2)) for n in range(3)]
    np.testing.assert_allclose(fit.beliefs.z, columns, rtol=1e-8)
    expected = [[part.sum() for part in people.parts(column)] for column in columns]
    np.testing.assert_allclose(fit.accounts(np.zeros(3), 200.0), expected, rtol=1e-8)


def test_accounts_count_labels_beyond_enough_for_little(types, people, ways):
    annotations = Annotations.from_arrays([0, 0], [0, 1], [0, 1], classes=[0, 1, 2])
    _, fit = settled(annotations, types, people, ways)
    prior = [part.sum() for part in people.parts(ways.omega)]
    np.testing.assert_allclose(fit.accounts(np.full(2, 1e12), 200.0), [prior, prior], rtol=1e-6)


def test_learning_shares_every_label_between_what_was_seen_and_what_was_not(types, people, ways):
    rng = np.random.default_rng(1)
    K, L, P = chances(types, people, ways).shape
    mass = rng.random((K, L, P)) * 1e6  # so many labels that what is expected beforehand does not count
    items, annotators = rng.random(K) * 1e6, rng.random(L) * 1e6
    statistics = Statistics(mass, items, annotators, 0.0)
    fit = Fit(types, people, ways, None, 0.0)
    found = learned(fit, statistics, SHARES)
    J = len(people.usual)
    theta, noise = np.zeros((P, P)), np.zeros(P)
    for k, column, y in itertools.product(range(K), range(2 * J), range(P)):
        made_of = (types.crowd if column < J else types.group)[k]
        manner = column % J
        eps = CARELESS[manner] if manner < len(CARELESS) else LEANING
        unit = mass[k, column, y] / by_hand(types, people, ways, k, column, y)
        theta[:, y] += unit * (1 - eps) * made_of * ways.theta[:, y]
        if manner < len(CARELESS):
            noise[y] += unit * eps * ways.noise[y]
    np.testing.assert_allclose(found.theta, theta / theta.sum(axis=1, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(found.noise, noise / noise.sum(), rtol=1e-4)
    np.testing.assert_allclose(found.psi, items / items.sum(), rtol=1e-3)
    looking = found.omega[: 2 * J].reshape(2, J)
    # The manners of crowd and group are shared, in whatever proportion the two stand.
    np.testing.assert_allclose(looking[0] / looking[0].sum(), looking[1] / looking[1].sum(), rtol=1e-9)
    np.testing.assert_allclose(
        looking.sum(axis=1), annotators[: 2 * J].reshape(2, J).sum(axis=1) / annotators.sum(), rtol=1e-4
    )


def test_contested_items_are_never_less_than_a_tenth(types, people, ways):
    items = np.where(types.contested, 1.0, 1e5)
    L = len(people.expected())
    statistics = Statistics(np.ones((len(items), L, 3)), items, np.ones(L), 0.0)
    psi = learned(Fit(types, people, ways, None, 0.0), statistics, SHARES).psi
    assert psi[types.contested].sum() == pytest.approx(LEAST_CONTESTED, rel=1e-9)
    assert psi.sum() == pytest.approx(1, rel=1e-9)
    np.testing.assert_allclose(psi[:3] / psi[:3].sum(), 1 / 3, rtol=1e-3)


def test_evidence_does_not_fall_while_learning():
    # Loops and expectations beforehand leave no theorem; on a large crowd the climb is steady all the same.
    from experiments.mixed_crowd import mixed_crowd

    fitting = Fitting(mixed_crowd(60, 40, seed=3).annotations, Local())
    climbed = [fitting.without_group(rounds).evidence for rounds in (2, 4, 8, 16, 32)]
    assert (np.diff(climbed) > -1e-3 * np.abs(climbed[0])).all()
    assert climbed[-1] > climbed[0]


@pytest.mark.slow
def test_deviations_find_who_turns_one_class_into_another():
    from experiments.mixed_crowd import mixed_crowd

    crowd = mixed_crowd(100, 60, spammers=0, minority=0, seed=5).annotations
    turned = (crowd.annotator < 10) & (crowd.label == 2)
    label = np.where(turned, 4, crowd.label)
    crowd = Annotations.from_arrays(crowd.item, crowd.annotator, label, classes=list(range(5)))
    fitting = Fitting(crowd, Local())
    table = deviations(fitting, fitting.without_group(30))
    assert table[:10, 2, 4].min() > table[10:, 2, 4].mean() + 3 * table[10:, 2, 4].std()
    assert np.abs(table[10:].mean(axis=0)).max() < 1.0  # labels, of sixty
