"""Items in the order in which they are decided, and what the page shows of each.

Items that the report says to adjudicate come first, and among them those whose most probable class is least
certain to be right: a decision tells most where the answer is most likely to change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators.plan import Findings, reason_of
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import text_column
from dissensus.labels.kinds import membership, parse_set
from dissensus.tables.decisions import Answer, Decision

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
MAX_PATH = 255  # characters


@dataclass(frozen=True)
class DecisionItems:
    """The items of some labels, with the results of two models and the decisions so far.

    Attributes
    ----------
    findings
        Findings about the labels, with the model of the population's answers.
    truth
        Model of the right class, trained on the decisions.
    decisions
        The decisions that count, by item.
    folder
        Folder of the labels, in which images are looked for.
    """

    findings: Findings
    truth: Any
    decisions: dict[str, Decision]
    folder: Path

    @property
    def labels(self) -> Annotations:
        """The labels."""
        return self.findings.annotations

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the items as text."""
        return [str(name) for name in self.labels.items]

    @cached_property
    def decided(self) -> NDArray[np.bool_]:
        """(items,): whether there is a decision, even if it is "unsure"."""
        return np.isin(np.array(self.ids, dtype=object), list(self.decisions))

    @property
    def takes_sets(self) -> bool:
        """True if an answer is a set of classes."""
        return self.labels.label_type == "multi"

    @cached_property
    def class_names(self) -> list[str]:
        """Names of the classes; of answers that are sets, their members."""
        vocabulary = self.labels.class_vocabulary
        return membership(vocabulary)[1] if self.takes_sets else [str(name) for name in vocabulary]

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Codes of the items to decide, the next one first."""
        to_decide = (self.labels.counts.sum(axis=1) > 0) & ~self.decided
        if self.labels.gold is not None:
            to_decide &= self.labels.gold < 0
        certainty = self.model.label_distributions_.max(axis=1)
        order = np.lexsort((certainty, ~self.findings.adjudicate))
        return np.asarray(order[to_decide[order]])

    @property
    def model(self) -> Any:
        """Model of the class of an item that is not decided: of pairs, that of the options."""
        return self.findings.model if self.labels.label_type == "pairwise" else self.truth

    def next(self, skipped: list[str]) -> str | None:
        """Return the next item; None if there is none.

        Items to adjudicate come before the others, also those skipped once. All others that were skipped come
        last, the one that was skipped longest ago first. The item that was skipped just now is never the next
        one if there is another.
        """
        times, last = Counter(skipped), {name: n for n, name in enumerate(skipped)}
        to_adjudicate, others = (
            [self.ids[m] for m in self.order if self.findings.adjudicate[m] == side] for side in (True, False)
        )
        by_skip = sorted(to_adjudicate + others, key=lambda name: last.get(name, -1))
        names = [name for name in to_adjudicate if not times[name]]
        names += [name for name in by_skip if times[name] == 1 and name in to_adjudicate]
        names += [name for name in others if not times[name]]
        names += by_skip
        return next((name for name in names if name not in skipped[-1:]), names[0] if names else None)

    def code(self, item: object) -> int:
        """Return the code of an item."""
        code = int(self.labels.item_vocabulary.codes([item])[0]) if isinstance(item, str) else -1
        if code < 0:
            raise DataError(f"{item!r} is not an item of these labels")
        return code

    def check_answer(self, label: Any) -> Answer:
        """Return a valid answer: a class, a sorted list of the members of a set, or None."""
        members = label if isinstance(label, list) else [label]
        is_sound = isinstance(label, list) == self.takes_sets and all(m in self.class_names for m in members)
        if label is not None and not is_sound:
            raise DataError(f"{label!r} is not an answer; the answers are {', '.join(self.class_names)}")
        return sorted(set(label)) if isinstance(label, list) else label

    def item(self, item: str) -> dict[str, Any]:
        """Return what the page shows of an item."""
        m, adjudicate, decision = self.code(item), self.findings.adjudicate, self.decisions.get(item)
        beyond = not adjudicate[m]
        before = (self.decided if beyond else self.decided & adjudicate).sum() - self.decided[m]
        columns = self._columns(m)
        sides = None
        if self.labels.label_type == "pairwise":
            sides = [columns.pop(side, "") for side in ("left", "right")]
        text = columns.pop(text_column(self.labels) or "", "")
        content: dict[str, Any] = {"item": item, "position": int(before) + 1, "of": int(adjudicate.sum())}
        content |= {"beyond": beyond, "why": reason_of(self.findings, m, not beyond)}
        content |= {"text": text, "sides": sides, "columns": columns, "answers": self._answers(m)}
        content["images"] = [f"image?id={m}&n={k}" for k in range(len(self.images(m)))]
        if decision is None:
            return content | {"decision": None}
        fields = {"label": decision.label, "unsure": decision.label is None, "note": decision.note}
        return content | {"decision": fields | {"seq": decision.seq}}

    def _columns(self, m: int) -> dict[str, str]:
        """Return the cells of the item table, as text, without blank ones."""
        table = self.labels.item_table
        row = {} if table is None else table.slice(m, 1).drop_columns(table.column_names[:1]).to_pylist()[0]
        return {name: str(cell) for name, cell in row.items() if cell is not None and str(cell).strip()}

    def text(self, m: int) -> str:
        """Return the text of an item."""
        return self._columns(m).get(text_column(self.labels) or "", "")

    def images(self, m: int) -> list[Path]:
        """Return the images that a cell of the item names and that lie in the folder of the labels."""
        cells = [cell for cell in (self.ids[m], *self._columns(m).values()) if len(cell) <= MAX_PATH]
        paths = [Path(cell) for cell in cells if cell.lower().endswith(IMAGE_SUFFIXES) and "\0" not in cell]
        try:
            resolved = [(self.folder / path).resolve() for path in paths]
            return [path for path in resolved if path.is_relative_to(self.folder) and path.is_file()]
        except (OSError, RuntimeError):  # a name that is too long, links in a circle
            return []

    def _answers(self, m: int) -> list[dict[str, Any]]:
        """Return for each class its labels, its share with an interval, and the chance that it is right."""
        labels, model, intervals = self.labels, self.findings.model, self.findings.intervals
        shares = model.label_distributions_[m]
        right = None if self.model is model else self.model.label_distributions_[m]
        members = np.eye(labels.n_classes, dtype=bool)
        low: list[Any] = [None] * len(self.class_names)
        high = low
        if self.takes_sets:
            members = membership(labels.class_vocabulary)[0]
            shares = model.class_shares_[m]  # type: ignore[attr-defined]
            # decisions may have added sets
            sets = [parse_set(str(name)) for name in self.truth.classes_]
            right = right @ np.array([[name in answer for name in self.class_names] for answer in sets])
        elif intervals is not None:
            low, high = intervals.low[m].tolist(), intervals.high[m].tolist()
        rows = slice(*labels.item_pointers[m : m + 2])
        who: list[list[dict[str, Any]]] = [[] for _ in self.class_names]
        for annotator, label in zip(labels.annotator[rows], labels.label[rows], strict=True):
            skill = None if self._skills is None else round(float(self._skills[annotator]), 4)
            person = {"name": str(labels.annotators[annotator]), "skill": skill}
            for p in np.flatnonzero(members[label]):
                who[p].append(person)
        return [
            {"label": name, "n": len(who[p]), "who": [] if labels.anonymous else who[p]}
            | {"share": float(shares[p]), "low": low[p], "high": high[p]}
            | {"right": None if right is None else float(right[p])}
            for p, name in enumerate(self.class_names)
        ]

    @cached_property
    def _skills(self) -> NDArray[Any] | None:
        """(annotators,): probability of a correct answer; None for a model without skills."""
        frame = getattr(self.truth, "annotator_frame", None)
        return None if frame is None else frame().get("accuracy")
