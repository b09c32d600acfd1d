"""How many labels it takes to tell spam from a minority view, on simulated crowds that have both.

Five classes, five labels an item; one annotator of ten answers by the class frequencies; 15 % see a third of
the items as another class than the crowd does. Two kinds of minority are asked about: one that sees the
*next* class on every contested item (a habit that can be learned) and one that sees *any* other class,
another on each item (nothing general to learn).

Run as ``python -m experiments.verdicts [-o FILE]``; needs no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dissensus._version import __version__
from dissensus.annotators.verdicts import annotator_verdicts
from dissensus.numerics import Array
from dissensus.paper.tables import line, table, yes
from experiments.common import write_page
from experiments.mixed_crowd import MINORITY, SPAMMER, mixed_crowd

COMMAND = "python -m experiments.verdicts"
LABELS_EACH = (5, 10, 15, 20, 30, 40, 60, 80, 100)
SEEDS = tuple(range(5))
ASKED_AT, ASKED = 40, 0.9  # labels each, and the precision and recall asked for there
CROWD: dict[str, Any] = {
    "n_annotators": 300,
    "labels_per_item": 5,
    "shares": (0.3, 0.25, 0.2, 0.15, 0.1),
    "accuracy": 0.8,
    "spammers": 0.1,
    "minority": 0.15,
    "contested": 1 / 3,
}
Sees = Literal["next", "any"]


def told_apart(labels_each: int, sees: Sees, seed: int) -> Array:
    """Precision and recall of spam, precision and recall of the minority view, on one crowd."""
    crowd = mixed_crowd(labels_each=labels_each, sees=sees, seed=seed, **CROWD)
    verdict = annotator_verdicts(crowd.annotations, min_labels=1).verdict
    found = [_precision_and_recall(verdict == what, crowd.kind == what) for what in (SPAMMER, MINORITY)]
    return np.array(found).ravel()


def _precision_and_recall(flagged: NDArray[np.bool_], true: NDArray[np.bool_]) -> tuple[float, float]:
    hits = float((flagged & true).sum())
    precision = hits / flagged.sum() if flagged.any() else float("nan")  # nobody accused: no precision
    return precision, hits / float(true.sum())


def curve(sees: Sees) -> dict[int, Array]:
    """(crowds, 4) for every number of labels that everybody gave."""
    return {n: np.array([told_apart(n, sees, seed) for seed in SEEDS]) for n in LABELS_EACH}


def lines(runs: dict[int, Array]) -> list[str]:
    """A curve as the lines of a table."""
    return [line(n, *map(_mean_and_least, values.T)) for n, values in runs.items()]


def _mean_and_least(values: Array) -> str:
    known = values[~np.isnan(values)]
    return f"{known.mean():.3f} (least {known.min():.2f})" if known.size else "–"


PAGE = """# Spam and minority views, told apart

Written by `{command}` (dissensus {version}); every figure is computed
by that command. What the verdicts are: [annotators](../annotators.md).

{n_annotators} annotators, five classes with shares {shares}, {labels_per_item} labels an item.
{spammers:.0%} spam: they answer by the class shares. {minority:.0%} see {contested:.0%} of the items as
another class. Whoever looks gives the class they see in {accuracy:.0%} of the cases and any other class in
the rest. Mean of {n_seeds} crowds, the least of them in brackets; nobody is spared for having few labels
(`min_labels=1`; by default nobody with fewer than ten is judged).

## The minority sees the next class

{next_class}

At {at} labels each, mean precision and recall are all at least {asked}: {held}.

## The minority sees any other class, another on each item

{any_class}
"""
HEAD = ("labels each", "spam: precision", "spam: recall", "minority: precision", "minority: recall")


def page(_: Path) -> str:
    """The whole page."""
    settings = CROWD | {"shares": " / ".join(map(str, CROWD["shares"]))}
    next_class = curve("next")
    return PAGE.format(
        command=COMMAND,
        version=__version__,
        n_seeds=len(SEEDS),
        at=ASKED_AT,
        asked=ASKED,
        held=yes(bool((next_class[ASKED_AT].mean(axis=0) >= ASKED).all())),
        next_class=table(HEAD, lines(next_class)),
        any_class=table(HEAD, lines(curve("any"))),
        **settings,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, whole or not at all."""
    write_page(COMMAND, "spam and minority views told apart", page, "docs/results/verdicts.md", arguments)


if __name__ == "__main__":
    main()
