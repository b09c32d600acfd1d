"""Which cells there are. Later stages build on what earlier ones chose, so a plan is asked stage by stage."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dissensus.paper.cells import Cell, Store
from dissensus.paper.columns import (
    COLUMNS,
    GUIDES,
    MEASURED_COLUMNS,
    NETWORK_SEARCHES,
    Column,
    shipped,
)
from dissensus.paper.datasets import Dataset
from dissensus.paper.printed import TABLE_2
from dissensus.paper.scale import Scale

PARTS = {
    "table1": "what the datasets are",
    "table2": "K and L chosen on dev, and how well clusters describe the labels",
    "table3": "label distributions of test items from their text",
    "hidden": "hidden labels of known annotators on known items",
    "recover": "the population from few labels",
    "gold": "reference labels: CBCC against PGM",
}
STAGES = (1, 2, 3)
SEED = 0

# Without --sets: the paper's data, two sets with many labels an item, and the two of Venanzi and co-authors.
USUAL = {
    **dict.fromkeys(("jq1", "jq2", "jq3"), ("table1", "table2", "table3", "hidden")),
    **dict.fromkeys(("nli_variation", "tweet_sensitivity"), ("recover",)),
    **dict.fromkeys(("weather_sentiment_amt", "weather_sentiment_cf"), ("hidden", "gold")),
}
HIDDEN_MODELS = ("counts", "dawid_skene", *GUIDES)
GOLD_MODELS = ("majority", "dawid_skene", "cbcc", "bp", "vb")


def possible_parts(data: Dataset) -> tuple[str, ...]:
    """What can be asked of a dataset that was named."""
    can = {"table3": data.has_text, "recover": data.has_many_labels, "gold": data.has_gold}
    return tuple(part for part in PARTS if can.get(part, True))


@dataclass(frozen=True)
class Plan:
    """Every cell of an evaluation."""

    scale: Scale
    datasets: Mapping[str, Dataset]
    parts: Mapping[str, Sequence[str]]  # dataset -> what is asked of it
    only: Sequence[str] = field(default=tuple(PARTS))

    def asked(self, part: str) -> list[str]:
        """The datasets of which a part is asked."""
        return [name for name in self.datasets if part in self.parts[name] and part in self.only]

    def stage(self, number: int, store: Store) -> list[Cell]:
        """The cells that can be run once the earlier stages are finished."""
        return list((self._first, self._second, self._third)[number - 1](store))

    def cells(self, store: Store) -> list[Cell]:
        """Every cell of a finished evaluation."""
        return [cell for number in STAGES for cell in self.stage(number, store)]

    # ---- stage 1: whatever needs nothing else -------------------------------------------------------

    def _first(self, store: Store) -> Iterator[Cell]:
        del store
        for name in self._either("table1", "table3"):
            yield self.description(name)
        for name in self._either("table2", "table3", "hidden", "gold"):
            yield from (self.search(name, guide) for guide in GUIDES)
        for name in self.asked("table2"):
            yield from self.paper_clusters(name)
        for name in self.asked("table3"):
            yield from (self.search(name, network) for network in NETWORK_SEARCHES)
            yield from self._columns(
                name, [key for key, one in MEASURED_COLUMNS.items() if one.search is None]
            )
        for name in self.asked("recover"):
            yield self.recovery(name)

    def _either(self, *parts: str) -> list[str]:
        """Datasets of which any of these parts is asked."""
        return [name for name in self.datasets if any(name in self.asked(part) for part in parts)]

    def description(self, name: str) -> Cell:
        """A line of Table 1."""
        return self._cell(name, "describe", "describe", {}, weight=1)

    def search(self, name: str, key: str) -> Cell:
        """The search for numbers of clusters, or for the sizes of a network's layers."""
        scale = self.scale
        trials = {"repeats": scale.search_repeats, "finalists": scale.finalists, "seed": SEED}
        if key in NETWORK_SEARCHES:
            sides = ("item_size", "annotator_size") if NETWORK_SEARCHES[key] else ("item_size",)
            grid = dict.fromkeys(sides, scale.sizes)
            network = self._paper_network(key) | {"patience": scale.search_patience}
            settings = {"grid": grid, "network": network, **trials}
            return self._cell(name, "network_search", f"{key}-search", settings, 4 * self._trials(grid))
        guide = GUIDES[key]
        grid = guide.grid(scale)
        settings = {"model": guide.model.__name__, "fixed": guide.fixed, "grid": grid, **trials}
        weight = guide.weight * self._trials(grid)
        return self._cell(name, "search", f"{key}-search", settings | {"guide": key}, weight)

    def _trials(self, grid: Mapping[str, Sequence[int]]) -> int:
        """Fits of a search: every cell of the grid once, the finalists on further splits."""
        cells = math.prod(map(len, grid.values()))
        return cells + min(cells, self.scale.finalists) * (self.scale.search_repeats - 1)

    def _paper_network(self, key: str) -> dict[str, Any]:
        return {**self.scale.ldlnm, "annotators": NETWORK_SEARCHES[key]}

    def paper_clusters(self, name: str) -> Iterator[Cell]:
        """Table 2 with the paper's own K × L."""
        for key, printed in TABLE_2.items():
            if name in printed:
                sizes = {"n_item_clusters": printed[name].item_clusters}
                if GUIDES[key].annotator_side:
                    sizes["n_annotator_clusters"] = printed[name].annotator_clusters or 1
                yield self.clusters(name, key, sizes, f"{key}-clusters-paper")

    def clusters(self, name: str, key: str, sizes: Mapping[str, Any], label: str) -> Cell:
        """How far the labels of the training items are from their clusters' distributions."""
        settings = {"guide": key, "sizes": dict(sizes), "seeds": list(range(self.scale.seeds))}
        return self._cell(name, "clusters", label, settings, weight=4)

    def recovery(self, name: str) -> Cell:
        """The population from few labels."""
        scale = self.scale
        settings = {
            "fmm": scale.recovery_fmm,
            "pgm": scale.recovery_pgm,
            "labels_shown": scale.labels_shown,
            "draws": scale.draws,
            "seed": SEED,
        }
        models = len(scale.recovery_fmm) + 2 * len(scale.recovery_pgm)
        weight = 0.5 * models * len(scale.labels_shown) * scale.draws
        return self._cell(name, "recovery", "recovery", settings, weight)

    # ---- stage 2: what builds on a search -----------------------------------------------------------

    def _second(self, store: Store) -> Iterator[Cell]:
        for name in self.asked("table2"):
            for key in (key for key, guide in GUIDES.items() if guide.item_side):
                yield self.clusters(name, key, self.chosen(name, key, store), f"{key}-clusters")
        for name in self.asked("table3"):
            yield from self._columns(
                name, [key for key, one in MEASURED_COLUMNS.items() if one.search], store
            )
        for name in self.asked("hidden"):
            yield from (self.hidden(name, model, store) for model in HIDDEN_MODELS)
        for name in self.asked("gold"):
            yield from (self.gold(name, model, store) for model in GOLD_MODELS)

    def chosen(self, name: str, key: str, store: Store) -> dict[str, Any]:
        """What the finished search chose."""
        measured = store.read(self.search(name, key))
        return {} if measured is None else dict(measured.numbers["chosen"])

    def hidden(self, name: str, model: str, store: Store) -> Cell:
        """A model asked for labels it was not shown."""
        settings = {"model": model, "splits": list(range(self.scale.hidden_splits))}
        return self._cell(name, "hidden", f"{model}-hidden", settings | self._sizes(name, model, store), 10)

    def gold(self, name: str, model: str, store: Store) -> Cell:
        """A model's most likely classes against reference labels."""
        settings = {"model": model, "seed": SEED} | self._sizes(name, model, store)
        return self._cell(name, "gold", f"{model}-gold", settings, weight=2)

    def _sizes(self, name: str, model: str, store: Store) -> dict[str, Any]:
        return {"sizes": self.chosen(name, model, store) if model in GUIDES else {}}

    # ---- the columns of Table 3 ---------------------------------------------------------------------

    def _columns(self, name: str, keys: Sequence[str], store: Store | None = None) -> Iterator[Cell]:
        for key in keys:
            yield from self.column(name, key, store)

    def column(self, name: str, key: str, store: Store | None = None) -> list[Cell]:
        """Every repeat of a column on a dataset."""
        column = COLUMNS[key]
        if column.of is not None:
            return self.column(name, column.of, store)
        settings = self._column_settings(name, key, column, store)
        return [
            self._cell(name, column.kind, key, settings | {"seed": SEED + repeat}, column.weight, repeat)
            for repeat in range(column.n_repeats(self.scale))
        ]

    def _column_settings(self, name: str, key: str, column: Column, store: Store | None) -> dict[str, Any]:
        scale = self.scale
        chosen = {} if column.search is None or store is None else self.chosen(name, column.search, store)
        if column.kind == "ldlnm":
            network = self._paper_network(key) | chosen
            return {"network": network, "evaluations": scale.repeats}
        if column.kind == "ldlnm_default":
            return {"network": {**scale.ldlnm, "annotators": key == "ldlnm_default"}}
        if column.kind == "guided":
            return {"guide": column.search, "sizes": chosen, "learner": dict(scale.cnn)}
        if column.kind == "guided_default":
            return {"model": repr(shipped(SEED))}
        learners = {"pd": scale.cnn, "encoder": {"model": scale.embedding, **scale.encoder}}
        return {"learner": dict(learners.get(key, {}))}

    # ---- stage 3: pictures --------------------------------------------------------------------------

    def _third(self, store: Store) -> Iterator[Cell]:
        if importlib.util.find_spec("openTSNE") is not None:
            yield from (self.picture(name, store) for name in self.asked("table3"))

    def picture(self, name: str, store: Store) -> Cell:
        """t-SNE of LDL-NM's training items."""
        network = self.column(name, "ldlnm", store)[0]
        settings = {"of": network.path, "network": network.settings, "seed": SEED}
        return self._cell(name, "picture", "tsne", settings, weight=10)

    def _cell(
        self,
        name: str,
        kind: str,
        label: str,
        settings: Mapping[str, Any],
        weight: float,
        repeat: int = 0,
    ) -> Cell:
        data = self.datasets[name]
        whole = {**settings, "data": data.mark, "seeded_split": data.seeded}
        # A set of other size than the paper's takes as much longer or shorter.
        return Cell(name, kind, label, repeat, whole, weight * data.annotations.n_labels / 20_000)
