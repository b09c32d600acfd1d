"""MACE: the iterations of crowd-kit, and a bound by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import dissensus as ds
from dissensus.engine import Engine
from dissensus.models import mace
from dissensus.models.confusion import ConfusionSteps


def test_iterations_equal_those_of_crowd_kit() -> None:
    """Compare the parameters after a few iterations from the same random start.

    crowd-kit numbers classes by occurrence and answers in sorted order; here both orders are the same.
    """
    peers = pytest.importorskip("crowdkit.aggregation")
    labels = ds.simulate(40, 6, 2, labels_per_item=6, seed=0).annotations
    columns = {"task": labels.item, "worker": labels.annotator, "label": labels.label != labels.label[0]}
    rows, rounds = pd.DataFrame(columns).astype(int), 4
    annotations = ds.Annotations.from_arrays(rows.task, rows.worker, rows.label)
    peer = peers.MACE(n_restarts=1, n_iter=rounds, random_state=5)
    peer._initialize(6, 2)
    knows, spams = peer.spamming_[:, 1:], peer.spamming_[:, :1] * peer.thetas_
    members, flat = ConfusionSteps(annotations, Engine()), np.log(np.full(2, 0.5))
    for _ in range(rounds):
        counts = members.e_step(np.log(mace.matrices(knows, spams)), flat, np.zeros_like(flat)).counts
        knows, spams = mace.updated_posteriors(counts, knows, spams).weights()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(rows)
    assert_allclose(knows, peer.spamming_[:, 1:], rtol=1e-6)
    assert_allclose(spams, peer.spamming_[:, :1] * peer.thetas_, rtol=1e-6)


def test_bound_by_hand() -> None:
    """With one label and two classes the marginal likelihood is exactly ½."""
    single = ds.Annotations.from_arrays([0], [0], [0], classes=[0, 1])
    model = ds.MACE(max_iter=500, tol=0.0).fit(single)
    assert math.log(0.5) - 0.5 < model.trace_[-1] < math.log(0.5)
