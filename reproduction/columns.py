"""The models: guides that cluster labels, the columns of Table 3, and where these depart from the paper."""

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
    item_side: bool = True  # has item clusters to choose
    annotator_side: bool = True  # has annotator clusters to choose
    weight: float = 0.3  # processor seconds of a trial in its search, roughly

    def build(self, settings: Mapping[str, Any]) -> Model:
        """An unfitted model."""
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
    """A column of Table 3: what is trained, how often, and on which search it builds."""

    title: str
    kind: str  # the measure
    repeats: str = "repeats"  # the scale's number of repeats, or "one": no chance in it, or too dear
    search: str | None = None  # the search whose choice it takes
    weight: float = 10.0  # processor seconds of one run, roughly
    of: str | None = None  # the column whose cells hold this one too …
    kept_as: str = ""  # … and under which name


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
PLAIN = "without_dropout"  # the same network, all of it asked

FURTHER_COLUMNS = {
    **{
        f"{key}_{INSIDE}": Column(
            f"{PAPER_COLUMNS[key].title}, sum inside, S chosen on dev", "guided", of=key, kept_as=INSIDE
        )
        for key in ("fmm", "annealing", "bp")
    },
    **{
        f"{key}_plain": Column(f"{PAPER_COLUMNS[key].title}, dropout off", "ldlnm", of=key, kept_as=PLAIN)
        for key in ("ldlnm", "ldlnm_alone")
    },
    # On LDL-NM's own features, and without snapping: what it is fairly compared with.
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
MEASURED_COLUMNS = {key: column for key, column in COLUMNS.items() if column.of is None}


@dataclass(frozen=True)
class Departure:
    """Something that the paper does otherwise than a column of ours does."""

    title: str  # what the paper does
    settings: Mapping[str, Any]  # that do so


_RANDOM = Departure("random start", {"start": "random"})
SIZES, GLOVE, ENCODER, EVERYTHING = "sizes", "glove", "encoder", "everything"

# Column -> its departures that are settings of its model; the paper's K × L, GloVe's vectors and the paper's
# encoder are added where they are known.
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
    """Each departure by itself, and all of them together; a single one is all there is."""
    settings = {setting: value for one in departures.values() for setting, value in one.settings.items()}
    if len(departures) == 1:
        return {EVERYTHING: next(iter(departures.values()))}
    return {**departures, EVERYTHING: Departure("all of it", settings)} if departures else {}


# LDL-NM's layers, searched like numbers of clusters.
NETWORK_SEARCHES = {"ldlnm": True, "ldlnm_alone": False}  # -> whether annotators are modelled


def learner_of(name: str, settings: Mapping[str, Any], seed: int) -> Any:
    """An unfitted learner of a column, on one thread and without progress bars."""
    if name == "softmax":
        from dissensus.text.learners.softmax import SoftmaxRegression

        return SoftmaxRegression(seed=seed, **settings)
    if name == "encoder":
        from dissensus.text.learners.finetuned import FineTunedEncoder

        return FineTunedEncoder(n_threads=1, progress=False, seed=seed, **settings)
    from reproduction.textcnn import TextCNN

    return TextCNN(n_threads=1, seed=seed, **settings)


def shipped(seed: int) -> Any:
    """GuidedClassifier with the guide and the learner that this library recommends."""
    from dissensus.models.dirichlet_regression import DirichletRegression
    from dissensus.text.guided.classifier import GuidedClassifier

    return GuidedClassifier(DirichletRegression(seed=seed), seed=seed)
