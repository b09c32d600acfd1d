"""The models: guides that cluster labels, the columns of Table 3, and their departures from the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dissensus.models.base import Model
from dissensus.models.cbcc import CBCC
from dissensus.models.fmm import FMM
from dissensus.models.pgm.model import PGM


@dataclass(frozen=True)
class Guide:
    """A graphical model whose numbers of clusters are searched."""

    title: str
    model: type[Model]
    fixed: Mapping[str, Any]
    item_side: bool = True  # whether the number of item clusters is searched
    annotator_side: bool = True  # whether the number of annotator clusters is searched
    weight: float = 0.3  # expected processor seconds of a trial

    def build(self, settings: Mapping[str, Any]) -> Model:
        """Return an unfitted model."""
        return self.model(**self.fixed, **settings)


GUIDES = {
    "fmm": Guide("FMM", FMM, {}, annotator_side=False, weight=0.1),
    "annealing": Guide("PGM (annealing)", PGM, {"inference": "annealing"}, weight=0.7),
    "bp": Guide("PGM (bp)", PGM, {"inference": "bp"}, weight=0.25),
    "vb": Guide("PGM (vb)", PGM, {"inference": "vb"}, weight=0.3),
    "cbcc": Guide("CBCC", CBCC, {}, item_side=False, weight=6.0),
}


@dataclass(frozen=True)
class Column:
    """A column of Table 3: its measure, its number of repeats, and the search it depends on."""

    title: str
    kind: str  # the measure
    repeats: str = "repeats"  # field of ``Scale``, or "one" for columns that are deterministic or slow
    search: str | None = None  # the search whose choice it uses
    weight: float = 10.0  # expected processor seconds of one run
    source: str | None = None  # column whose cells contain this one as well
    variant: str = ""  # name of this one in the cells of ``source``


PAPER_COLUMNS = {
    "pd": Column("PD", "learner"),
    "fmm": Column("FMM", "guided", search="fmm"),
    "annealing": Column("PGM (annealing)", "guided", search="annealing", weight=14),
    "bp": Column("PGM (bp)", "guided", search="bp", weight=12),
    "ldlnm": Column("LDL-NM", "ldlnm", search="ldlnm", repeats="one", weight=40),
    "ldlnm_alone": Column(
        "LDL-NM without annotators", "ldlnm", search="ldlnm_alone", repeats="one", weight=20
    ),
}

INSIDE = "inside"  # the other projection: annotator sum inside, S chosen on dev
PLAIN = "without_dropout"  # the same network, evaluated without dropout

FURTHER_COLUMNS = {
    **{
        f"{key}_{INSIDE}": Column(
            f"{PAPER_COLUMNS[key].title}, sum inside, S chosen on dev", "guided", source=key, variant=INSIDE
        )
        for key in ("fmm", "annealing", "bp")
    },
    **{
        f"{key}_plain": Column(f"{PAPER_COLUMNS[key].title}, dropout off", "ldlnm", source=key, variant=PLAIN)
        for key in ("ldlnm", "ldlnm_alone")
    },
    # On the features of LDL-NM and without snapping: the fair comparison.
    **{
        f"{key}_soft": Column(
            f"{guide.title}, soft, on embeddings", "guided_soft", search=key, repeats="own_repeats", weight=4
        )
        for key, guide in GUIDES.items()
    },
    "guided": Column("GuidedClassifier, defaults", "guided_default", repeats="own_repeats", weight=30),
    "softmax": Column("SoftmaxRegression", "learner", repeats="one", weight=2),
    "ldlnm_default": Column("LDL-NM, defaults", "ldlnm_default", repeats="own_repeats", weight=40),
    "ldlnm_default_alone": Column(
        "LDL-NM, defaults, without annotators", "ldlnm_default", repeats="own_repeats", weight=30
    ),
    "encoder": Column("FineTunedEncoder", "learner", repeats="one", weight=140),
}

COLUMNS = PAPER_COLUMNS | FURTHER_COLUMNS
MEASURED_COLUMNS = {key: column for key, column in COLUMNS.items() if column.source is None}


@dataclass(frozen=True)
class Departure:
    """A setting in which one of our columns departs from the paper."""

    title: str  # what the paper does
    settings: Mapping[str, Any]  # settings as in the paper


_RANDOM = Departure("random start", {"start": "random"})
SIZES, GLOVE, ENCODER, EVERYTHING = "sizes", "glove", "encoder", "everything"
# Titles of departures that depend on the dataset or on files.
OPTIONAL_DEPARTURES = {SIZES: "its K × L", GLOVE: "GloVe word vectors", ENCODER: "its encoder"}

# Departures of each column that are settings of its model. The paper's K × L, GloVe vectors and the paper's
# encoder are added where they are available.
DEPARTURES: dict[str, dict[str, Departure]] = {
    "pd": {},
    "fmm": {"start": _RANDOM},
    "annealing": {
        "start": _RANDOM,
        "cooling": Departure(
            "T = 1/(t + 1), no ascent", {"temperature": 1.0, "cooling": 1.0, "ascent": False}
        ),
    },
    "bp": {"start": _RANDOM, "rounds": Departure("up to ten rounds of messages", {"bp_rounds": 10})},
    "ldlnm": {
        "epoch": Departure("the last of 200 epochs", {"dev_size": 0.0}),
        "rescale": Departure("features as they come", {"rescale": False}),
    },
}


def with_all(departures: Mapping[str, Departure]) -> dict[str, Departure]:
    """Return each departure alone and all of them together; a single one counts as all."""
    settings = {
        name: value for departure in departures.values() for name, value in departure.settings.items()
    }
    if len(departures) == 1:
        return {EVERYTHING: next(iter(departures.values()))}
    return {**departures, EVERYTHING: Departure("all of these", settings)} if departures else {}


# Searches over LDL-NM's layer sizes, and whether annotators are modelled.
NETWORK_SEARCHES = {"ldlnm": True, "ldlnm_alone": False}


def learner_of(name: str, settings: Mapping[str, Any], seed: int) -> Any:
    """Return the unfitted learner of a column, on one thread and without progress bars."""
    if name == "softmax":
        from dissensus.text.learners.softmax import SoftmaxRegression

        return SoftmaxRegression(seed=seed, **settings)
    if name == "encoder":
        from dissensus.text.learners.finetuned import FineTunedEncoder

        return FineTunedEncoder(n_threads=1, progress=False, seed=seed, **settings)
    from reproduction.textcnn import TextCNN

    return TextCNN(n_threads=1, seed=seed, **settings)


def default_guided(seed: int) -> Any:
    """Return GuidedClassifier with the guide and the learner that this library recommends."""
    from dissensus.models.dirichlet_regression import DirichletRegression
    from dissensus.text.guided.classifier import GuidedClassifier

    return GuidedClassifier(DirichletRegression(seed=seed), seed=seed)
