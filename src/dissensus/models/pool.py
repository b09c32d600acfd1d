"""The default model: HPGM and latent positions in equal parts, for ordered classes also graded response.

HPGM has clusters of items and annotators, LatentPositions continuous positions, GradedResponse one scale.
Which of them predicts labels best differs between datasets and between items, and each is too sure of itself.
The pool takes the mean of their J answers,

    P(y | item) = 1/J Σ_j P_j(y | item),    P(y | item, annotator) = 1/J Σ_j P_j(y | item, annotator),

and the same number of draws of the population's answers from each, so that intervals also cover how far the
models differ. Nothing is fitted or selected. Clusters and verdicts on annotators are those of HPGM.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Engine
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.base import VOCABULARIES
from dissensus.models.graded import GradedResponse
from dissensus.models.hpgm.adjustments import Aliases
from dissensus.models.hpgm.model import HPGM, LastStates
from dissensus.models.latent import LatentPositions
from dissensus.models.sampled import differences_of_all, evenly_spaced, item_differences
from dissensus.models.scoring import unfitted_rows
from dissensus.numerics import Array
from dissensus.params import PROCESS_BYTES, fitted
from dissensus.tables.arrays import Arrays, Header

MAX_DRAWS_OF_MEMBER = 150  # draws of the answers from each member
MAX_POOLED_NUMBERS = 100_000_000  # array elements of all of them
STOPPED = ("time limit", "number of chains", "tolerance")  # why chains end, the worst first
MIN_GRADES = 3  # ordered classes from which GradedResponse is a member


class Pool(HPGM):
    """Default model: the mean of HPGM, LatentPositions and, for ordered classes, GradedResponse.

    The settings are those of HPGM; numbers of chains and sweeps are also those of LatentPositions.
    """

    _draw_arrays = (*HPGM._draw_arrays, "members_")

    members_: list[Any] = fitted("the fitted models besides HPGM", saved=False)

    def _new_members(self, label_type: str, n_classes: int) -> list[Any]:
        n_sampled = min(self.max_sampled, LatentPositions.max_sampled)
        sizes = {"n_chains": self.n_chains, "n_sweeps": self.n_sweeps}
        latent = LatentPositions(
            weight_by=self.weight_by, adjust=False, max_sampled=n_sampled, seed=self.seed, n_jobs=self.n_jobs
        ).set_params(**{name: value for name, value in sizes.items() if value is not None})
        is_scale = label_type == "ordinal" and n_classes >= MIN_GRADES
        return [latent, GradedResponse(weight_by=self.weight_by)] if is_scale else [latent]

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """Estimate the memory of a fit in bytes: each member keeps its draws while the next one is fitted."""
        members = self._new_members(labels.label_type, labels.n_classes)
        needed = (model.memory_needed(labels, n_threads) - PROCESS_BYTES for model in members)
        return int(super().memory_needed(labels, n_threads, features) + sum(needed))

    # ---- fitting --------------------------------------------------------------------------------------

    def _sample_posterior(
        self, labels: Annotations, engine: Engine, last: LastStates, hints: Array | None
    ) -> None:
        self.members_ = self._new_members(labels.label_type, labels.n_classes)
        latent, *graded = self.members_
        engine.n_stages = 2
        super()._sample_posterior(labels, engine, last, hints)
        engine.next_stage()
        weights = self.annotator_weights_
        latent.fit_on(engine, labels, weights=weights, last=last.get("positions", ()))
        for member in graded:
            member.fit_on(engine, labels, weights=weights)
        # the mean of independent members, for the items that both sample: those of LatentPositions
        variance = self.run_variance_[np.searchsorted(self.sampled_, latent.sampled_)] + latent.run_variance_
        self.run_variance_ = variance / (1 + len(self.members_)) ** 2
        self.item_difference_ = differences_of_all(self.run_variance_, latent.sampled_, labels.n_items)
        self.run_difference_ = np.asarray(item_differences(self.run_variance_).mean())
        self.stopped_ = min(self.stopped_, latent.stopped_, key=STOPPED.index)
        self._pool(np.ones(labels.n_items, dtype=bool))
        priors = [self.prior_distribution_, *(member.prior_distribution_ for member in self.members_)]
        self.prior_distribution_ = np.mean(priors, axis=0)

    def _pool(self, chosen: NDArray[np.bool_]) -> None:
        """Replace HPGM's answers about the chosen items, and their draws, by those of the pool."""
        answers = [self.label_distributions_, *(member.label_distributions_ for member in self.members_)]
        self.label_distributions_ = np.where(chosen[:, None], np.mean(answers, axis=0), answers[0])
        rng = np.random.default_rng([self.seed, 1 << 25])
        latent, *graded = self.members_
        # a member with fewer draws repeats them, so that all have the same weight
        draws = self.share_draws_, latent.share_draws_
        sizes, numbers = [*map(len, draws)], answers[0].size * len(answers)
        size = min(MAX_DRAWS_OF_MEMBER, max(sizes), max(min(sizes), MAX_POOLED_NUMBERS // max(numbers, 1)))
        clusters, positions = (part[evenly_spaced(size, len(part))] for part in draws)
        parts = [clusters, np.where(chosen[:, None], positions, clusters)]
        parts += [np.where(chosen[:, None], each.draw_answers(size, rng), clusters) for each in graded]
        self.share_draws_ = np.concatenate(parts)

    def _copy_to_aliases(self, annotations: Annotations, aliases: Aliases) -> None:
        super()._copy_to_aliases(annotations, aliases)
        for member in self.members_:
            member.take_annotators(aliases.code, annotations.annotator_vocabulary, self.annotator_weights_)

    def _with_labels(self, new: Annotations) -> tuple[Annotations, LastStates]:
        merged, last = super()._with_labels(new)
        return merged, last | {"positions": self.members_[0].extended_states(merged)}

    # ---- other items and annotators -------------------------------------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        others = [member._pair_distributions(item, annotator) for member in self.members_]
        return np.asarray(np.mean([super()._pair_distributions(item, annotator), *others], axis=0))

    def _attribute_distributions(self, item: Codes, cell: NDArray[np.intp]) -> Array:
        unknown = np.full(len(item), -1)
        others = [member._pair_distributions(item, unknown) for member in self.members_]
        return np.asarray(np.mean([super()._attribute_distributions(item, cell), *others], axis=0))

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        super()._apply(new, fitted, engine)
        self.members_ = [member.apply(new) for member in fitted.members_]
        part, item, _ = unfitted_rows(new, fitted)
        # items of the fit without new labels keep their answers
        self._pool((item < 0) | (np.bincount(part.item, minlength=new.n_items) > 0))
        self._floor_unanimous(np.where((item < 0)[:, None], new.counts, 0))

    def annotator_frame(self, interval: float = 0.9) -> dict[str, Any]:
        """Return HPGM's columns about annotators; for ordered classes also leniency, slope and guess rate.

        Parameters
        ----------
        interval
            Probability content of the credible intervals, such as 0.9.
        """
        graded = [member for member in self.members_ if isinstance(member, GradedResponse)]
        return super().annotator_frame(interval) | (graded[0].annotator_frame() if graded else {})

    def to_inference_data(self) -> Any:
        """Raise an error: the draws of a pool are those of several models. Fit ``HPGM`` for ArviZ."""
        raise DataError("the draws of a pool are those of several models; fit HPGM for ArviZ")

    # ---- saving and loading ---------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        members = []
        for number, member in enumerate(self.members_):
            member_facts, member_arrays = member._state()
            for name, array in member_arrays.items():
                if name.split(".")[0] not in VOCABULARIES:
                    arrays[f"members_.{number}.{name}"] = array
            members.append(member_facts)
        return facts | {"members": members}, arrays

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        self.members_ = self._new_members(facts["label_type"], len(self.class_vocabulary_))
        ids = {key: array for key, array in arrays.items() if key.split(".")[0] in VOCABULARIES}
        for number, member in enumerate(self.members_):
            prefix = f"members_.{number}."
            names = [name for name in arrays if name.startswith(prefix)]
            member_arrays = {name.removeprefix(prefix): arrays[name] for name in names}
            member._restore(facts["members"][number], member_arrays | ids)
