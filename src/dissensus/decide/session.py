"""Labels, fits in the background and the decisions of a person, for a page on this machine.

Two models answer two questions. The first estimates the *answers* of a population: a quick fit, then the
default, with the report. The second is a model of the *truth*, which is trained on the decisions as gold and
is fitted again after each of them, so that the item, its annotators and the next items change.
"""

from __future__ import annotations

import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.annotators.plan import Findings
from dissensus.decide.items import DecisionItems
from dissensus.errors import DataError, DissensusError, setting
from dissensus.evaluate.truth import choose_truth
from dissensus.importers.read import read_annotations
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.models.confusion import gold_prior
from dissensus.params import with_settings
from dissensus.tables.decisions import Decision, DecisionLog
from dissensus.workflow.refine import DEFAULTS, fit
from dissensus.workflow.runs import is_run, load_run, open_labels

MAX_NOTE = 10_000  # characters
JOURNAL = "decisions.jsonl"
Read = Callable[..., Annotations]


class DecisionSession:
    """Labels, fits and decisions.

    Parameters
    ----------
    folder
        Directory of the decisions; None: see ``open``.
    read
        Function that reads a file of labels.
    seed
        Seed of the fits.
    """

    def __init__(self, folder: Path | None = None, read: Read = read_annotations, seed: int = 0) -> None:
        self.folder, self.read, self.seed = folder, read, seed
        self.stage, self.message, self.error, self.title = "waiting", "", "", ""
        self.share, self.version, self.is_fast = 0.0, 0, False
        self.report, self.report_version, self._reported = b"", 0, dict[str, Decision]()
        self.labels: Any = None  # Annotations, once they are read
        self.items: DecisionItems | None = None
        self.images = Path()  # folder of the labels, in which images are looked for
        self._journal: DecisionLog | None = None
        self._lock, self._new_decisions = threading.RLock(), threading.Event()
        self._closed = False
        self._fitting_truth = threading.Lock()  # one fit at a time, so that the later decisions win

    # ---- work in the background -----------------------------------------------------------------------

    def open(self, path: Path, folder: Path | None = None) -> None:
        """Read a file of labels or a finished run, and fit the labels in the background.

        The decisions are in ``folder``; None: in votes-decisions beside votes.csv, or the run votes-refined.
        """
        with self._lock:
            if self.labels is not None:
                raise DataError("labels are open already; start dissensus open again for another file")
            labels = open_labels(path, self.read)
            saved = load_run(path) if is_run(path) else None
            beside = path.resolve().parent if folder is None else folder
            self._take(labels, path.name, beside / f"{path.stem.removesuffix('-refined')}-decisions")
            self.images = path.resolve().parent
        if saved is None:
            self._start(self._fit_all)
        else:
            self._start(self._show, saved.model, **saved.evidence())

    def show(self, labels: Annotations, model: Model, seed: int = 0) -> None:
        """Show labels and a model that is fitted to them."""
        self.seed = seed
        self._take(labels, "labels", Path("labels-decisions"))
        self._start(self._show, model)

    def refit(self) -> dict[str, Any]:
        """Choose and fit the model of the truth again in the background, and renew the report."""
        self.opened()
        self._start(self._refit)
        return {"message": "fitting again, with the decisions"}

    def _take(self, labels: Annotations, title: str, folder: Path) -> None:
        """Take labels, and open their file of decisions."""
        if labels.label_type == "numeric":
            raise DataError(f"{title}: numbers are estimated, not decided; use dissensus fit")
        journal = DecisionLog((self.folder or folder) / JOURNAL, title)
        ids = set(map(str, labels.items))
        foreign = next((item for item in journal.decisions if item not in ids), None)
        if foreign is not None:
            journal.close()
            problem = f"{journal.path}: has decisions on other items, such as {foreign!r}, than {title}"
            raise DataError(f"{problem}; name another directory with {setting('output')}")
        self._journal, self.labels, self.title = journal, labels, title

    def close(self) -> None:
        """Stop taking decisions, and close their file."""
        with self._lock:
            self._closed = True
            self._new_decisions.set()
            if self._journal is not None:
                self._journal.close()

    def _start(self, work: Callable[..., None], *arguments: Any, **evidence: Any) -> None:
        with self._lock:
            if self.stage == "fitting":
                raise DataError("a fit is running; wait until it is finished")
            self.stage, self.error, self.share = "fitting", "", 0.0
        # messages of the thread name settings as those of the caller do
        run = partial(copy_context().run, self._run, work, *arguments, **evidence)
        threading.Thread(target=run, daemon=True).start()

    def _run(self, work: Callable[..., None], *arguments: Any, **evidence: Any) -> None:
        with self._failures_shown():
            work(*arguments, **evidence)
        self.stage, self.message = "failed" if self.items is None else "ready", ""

    @contextmanager
    def _failures_shown(self) -> Iterator[None]:
        """Turn a failure inside the block into the line that the page shows."""
        try:
            yield
        except DissensusError as error:
            self.error = str(error)
        except Exception as error:
            traceback.print_exc()
            self.error = f"internal error ({error!r}); the decisions are saved"

    def _fit_all(self) -> None:
        if DEFAULTS[self.labels.label_type] == "pool" and not self.labels.anonymous:
            # the quick fit does not wait for the embedding of texts
            self._set_answers(self._fit({"use_features": False}), is_fast=True)
        self._set_answers(self._fit())
        self._write_report()

    def _show(self, model: Model, **evidence: Any) -> None:
        self._set_answers(model)
        self._write_report(**evidence)

    def _fit(self, quick: dict[str, Any] | None = None) -> Model:
        self.message = "fitting the default model" if quick is None else "a quick first fit"

        def progress(_: str, share: float) -> None:
            self.share = min(share, 1.0)

        effort: dict[str, Any] = {"settings": quick, "fast": quick is not None}
        return fit(self.labels, **effort, seed=self.seed, progress=progress).model

    def _set_answers(self, model: Model, is_fast: bool = False) -> None:
        """Show the answers of a model; the first time, also fit the model of the truth."""
        findings = Findings(model, self.labels, model.intervals())
        truth = self._choose_truth() if self.items is None else None
        with self._changed():
            self.is_fast = is_fast
            if truth is None:
                self.items = replace(self.opened(), findings=findings)
                return
            self.items = DecisionItems(findings, truth, self.decisions, self.images)
        threading.Thread(target=self._keep_up, daemon=True).start()

    def _choose_truth(self) -> Model:
        labels = self._labels_with_gold()
        return choose_truth(labels, self.seed, prior=gold_prior(labels), progress=False).model

    def _refit(self) -> None:
        self.message = "choosing the model of the right class"
        with self._fitting_truth:
            truth = self._choose_truth()
            with self._changed():
                self.items = replace(self.opened(), truth=truth)
        self._new_decisions.set()  # there may be some since
        self._write_report()

    def _write_report(self, **evidence: Any) -> None:
        from dissensus.report.page import write_report

        self.message, model, decisions = "writing the report", self.opened().findings.model, self.decisions
        labels = self._labels_with_gold() if model.answers_are_classes else self.labels
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            write_report(labels, model, path, title=self.title, progress=False, **evidence)
            page = path.read_bytes()
        with self._lock:
            self.report, self.report_version, self._reported = page, self.report_version + 1, decisions

    def _keep_up(self) -> None:
        """Fit the model of the truth again whenever there are new decisions."""
        while True:
            self._new_decisions.wait()
            self._new_decisions.clear()
            if self._closed:
                return
            with self._failures_shown(), self._fitting_truth:
                labels = self._labels_with_gold()
                truth = with_settings(self.opened().truth, {}).fit(labels, prior=gold_prior(labels))
                with self._changed():
                    self.items, self.error = replace(self.opened(), truth=truth), ""

    @property
    def journal(self) -> DecisionLog:
        """The file of decisions."""
        if self._journal is None:
            raise DataError("the labels are not ready yet; wait until they are read")
        return self._journal

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """Lock inside the block, after which the page shows new numbers."""
        with self._lock:
            yield
            self.version += 1

    # ---- decisions ------------------------------------------------------------------------------------

    @property
    def decisions(self) -> dict[str, Decision]:
        """The decisions that count, by item."""
        return {} if self._journal is None else self._journal.decisions

    def _labels_with_gold(self) -> Annotations:
        """Return the labels with the decisions as gold; a decision counts more than gold of the labels."""
        labels: Annotations = self.labels
        gold = dict[str, Any]()
        if labels.gold is not None:
            judged = np.flatnonzero(labels.gold >= 0)
            names = labels.classes[labels.gold[judged]]
            gold = dict(zip(map(str, labels.items[judged]), names, strict=True))
        classes = set(map(str, labels.classes))
        for decision in self.decisions.values():
            if decision.class_name in classes or isinstance(decision.label, list):
                gold[decision.item] = decision.class_name
        return labels.with_tables(gold={"item": list(gold), "label": list(gold.values())}) if gold else labels

    def decide(self, item: Any, label: Any, note: Any = "") -> dict[str, Any]:
        """Write a decision to disk; ``label`` is a class, the classes of a set, or None if unsure."""
        with self._lock:
            items = self.opened()
            items.code(item)
            if not isinstance(note, str) or len(note) > MAX_NOTE:
                raise DataError(f"a note is a text of at most {MAX_NOTE:,} characters; shorten it")
            note = note.encode("utf-8", "replace").decode()  # half characters cannot be written
            replaced = item in items.decisions
            seq = self.journal.decide(item, items.check_answer(label), note)
            self._take_decisions()
            return {"seq": seq, "item": item, "replaced": replaced} | self._counts()

    def undo(self, seq: int | None = None) -> dict[str, Any]:
        """Undo the last decision; ``seq`` is the last line that the person has seen."""
        with self._lock:
            self.opened()
            last = self.journal.last
            if seq is not None and last is not None and last["seq"] > seq:
                raise DataError(f"{last['item']!r} was decided in another tab since; look at it first")
            undone = self.journal.undo()
            if undone is None:
                raise DataError("there is no decision to undo")
            self._take_decisions()
            seq, line = undone
            return {"seq": seq, "item": line["item"], "label": line["label"], "note": line.get("note", "")}

    def _take_decisions(self) -> None:
        self.items = replace(self.opened(), decisions=self.decisions)
        self._new_decisions.set()

    def opened(self) -> DecisionItems:
        """Return the items; raise an error before the first fit."""
        if self.items is None:
            raise DataError("the labels are not ready yet; wait for the first fit")
        return self.items

    # ---- what the page shows --------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state of the fits and of the decisions."""
        with self._lock:
            names = ("stage", "message", "share", "error", "version", "title")
            state: dict[str, Any] = {name: getattr(self, name) for name in names}
            state |= {"report": self.report_version, "fast": self.is_fast}
            state["report_is_old"] = self.report_version > 0 and self._reported != self.decisions
            if self.items is None:
                return state
            labels = self.items.labels
            state |= {"n_items": labels.n_items, "n_labels": labels.n_labels, "kind": labels.label_type}
            state |= {"classes": self.items.class_names, "file": str(self.journal.path.resolve())}
            state |= {"to_decide": int(self.items.findings.adjudicate.sum()), "latest": self.journal.last}
            state |= {"notes": list(labels.notes), "can_undo": bool(self.items.decisions)}
            return state | self._counts()

    def _counts(self) -> dict[str, int]:
        """Return the numbers of items that are decided, and of those that the person is unsure about."""
        decisions = self.opened().decisions.values()
        n_unsure = sum(decision.label is None for decision in decisions)
        return {"decided": len(decisions) - n_unsure, "unsure": n_unsure}

    def next(self, skipped: list[str]) -> dict[str, Any]:
        """Return the next item to decide; its id is None if all are decided."""
        items = self.opened()
        item = items.next(skipped)
        return {"item": None} if item is None else items.item(item)
