"""Sessions of small crowds, waited for until their fits are finished."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus.decide.session import DecisionSession

WAIT_SECONDS = 60.0


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    stop = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < stop, "waited too long"
        time.sleep(0.01)


def decided(session: DecisionSession, item: str, label: object, note: str = "") -> None:
    """Decide an item, and wait for the model of the truth."""
    version = session.version
    session.decide(item, label, note)
    wait(lambda: session.version > version)


def crowd() -> ds.Annotations:
    """Thirty items by six annotators, of whom two click at random; items 0 to 5 are nearly tied."""
    rng = np.random.default_rng(3)
    rows = []
    for m in range(30):
        for n in range(6):
            right = n % 2 if m < 6 else m % 2
            answer = rng.integers(2) if n >= 4 else right
            rows.append((f"c{m}", f"a{n}", ("no", "yes")[answer]))
    item, annotator, label = zip(*rows, strict=True)
    texts = {"item": [f"c{m}" for m in range(30)], "text": [f"comment {m}" for m in range(30)]}
    return ds.Annotations.from_arrays(list(item), list(annotator), list(label), items=texts)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[DecisionSession]:
    """A session whose model has been fitted."""
    labels, session = crowd(), DecisionSession(tmp_path / "decisions")
    session.show(labels, ds.Pool(n_chains=2, n_sweeps=40, use_features=False).fit(labels))
    wait(lambda: session.stage == "ready")
    assert not session.error
    yield session
    session.close()
