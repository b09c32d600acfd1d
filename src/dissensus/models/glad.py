"""GLAD: annotators of different ability on items of different difficulty (Whitehill et al., NIPS 2009).

How a label is born: item m has a true class t_m, all classes alike; annotator n is right with chance

    σ(α_n e^{β_m}),                  α_n ~ N(1, 1) (ability),  β_m ~ N(1, 1) (ease),                    (1)

and otherwise says any other class alike. EM on the log-posterior of α and β:

    log P(t_m = k | labels) = Σ_n [y_mn = k] (α_n e^{β_m} + log(P − 1)) + const                         (2)

and with c_mn = P(t_m = y_mn) the M-step raises

    Q = Σ_mn [c_mn log σ + (1 − c_mn) log (1 − σ)/(P − 1)] − ½ Σ (α_n − 1)² − ½ Σ (β_m − 1)²            (3)

by a Newton step of every β_m and then of every α_n, each shortened until its own part of Q does not fall.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit, log_expit

from dissensus.engine import Block, Blocks, ConvergenceMonitor, Engine, Shard
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.confusion import ConfusionModel, log_chances
from dissensus.numerics import Array, softmax_rows
from dissensus.params import MAX_ITER, TOL, fitted, setting

CENTRE = 1.0  # mean of both priors, and where ability and ease start
SHARES = (1.0, 0.5, 0.25, 0.0)  # of a Newton step that are tried
MOST_EASE = 20.0  # e^β stays finite


@dataclass(frozen=True)
class State:
    """What is learned."""

    ability: Array  # (N,): α
    ease: Array  # (M,): β


# ---- a block -------------------------------------------------------------------------------------------


def posterior_step(shard: Shard, own: tuple[Array, Array], ability: Array) -> tuple[Array, float]:
    """P(t_m = k) of a block's items (2), and Σ_m log P(labels of m)."""
    ease, log_given = own
    M, P = shard.n_items, shard.n_classes
    x = ability[shard.annotator] * np.exp(ease[shard.item])
    cells = shard.item * np.int64(P) + shard.label
    favour = np.bincount(cells, x + np.log(max(P - 1, 1)), minlength=M * P).reshape(M, P)
    w, evidence = softmax_rows(favour + (log_given - np.log(P)))
    # every label's log (1 − σ)/(P − 1) is in all classes' sums alike
    return w, float(evidence.sum() + (log_expit(-x) - np.log(max(P - 1, 1))).sum())


def label_terms(c: Array, x: Array) -> Array:
    """Each label's part of Q, but for constants: c log σ(x) + (1 − c) log σ(−x)."""
    return np.asarray(c * log_expit(x) + (1 - c) * log_expit(-x))


def ease_step(shard: Shard, own: tuple[Array, Array], ability: Array) -> tuple[Array, Array, Array, float]:
    """New β of a block's items, slope and curvature of Q in every α, and the evidence of the old state."""
    ease = own[0]
    w, evidence = posterior_step(shard, own, ability)
    c, a, item = w[shard.item, shard.label], ability[shard.annotator], shard.item
    x = a * np.exp(ease[item])
    s = expit(x)
    slope = np.bincount(item, (c - s) * x, minlength=len(ease)) - (ease - CENTRE)
    curvature = np.bincount(item, s * (1 - s) * x**2, minlength=len(ease)) + 1.0
    best, best_score = ease, np.full(len(ease), -np.inf)
    for share in SHARES:
        moved = np.clip(ease + share * slope / curvature, -MOST_EASE, MOST_EASE)
        terms = label_terms(c, a * np.exp(moved[item]))
        score = np.bincount(item, terms, minlength=len(ease)) - 0.5 * (moved - CENTRE) ** 2
        best, best_score = np.where(score > best_score, moved, best), np.maximum(score, best_score)
    scale = np.exp(best[item])
    s, N = expit(a * scale), len(ability)
    slopes = np.bincount(shard.annotator, (c - s) * scale, minlength=N).astype(np.float64)
    curved = np.bincount(shard.annotator, s * (1 - s) * scale**2, minlength=N).astype(np.float64)
    return best, slopes, curved, evidence


def ability_step(shard: Shard, own: tuple[Array, Array, Array], ability: Array, moved: Array) -> Array:
    """(shares, N): each annotator's labels' part of Q at every α tried; P(true class) is the old state's."""
    ease, log_given, following = own
    w, _ = posterior_step(shard, (ease, log_given), ability)
    c, scale = w[shard.item, shard.label], np.exp(following[shard.item])
    terms = [label_terms(c, tried[shard.annotator] * scale) for tried in moved]
    return np.array([np.bincount(shard.annotator, one, minlength=len(ability)) for one in terms])


# ---- the model -----------------------------------------------------------------------------------------


class GLAD(ConfusionModel):
    """Annotators differ in ability and items in ease; all wrong answers are alike."""

    max_iter: int = setting(100, *MAX_ITER)
    _: KW_ONLY
    tol: float = setting(1e-5, *TOL)

    _memory_tables = {"MP": 5, "NPP": 3, "N": 300}  # sums over annotators of every block

    abilities_: Array = fitted("(N,): α")
    ease_: Array = fitted("(M,): β")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        blocks, P = engine.blocks(annotations, Block.shard), annotations.n_classes
        given = np.broadcast_to(self._known_before(prior, annotations), (annotations.n_items, P))
        log_given = log_chances(given)
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        state = monitor.resume(State)
        if state is None:
            state = State(np.full(annotations.n_annotators, CENTRE), np.full(annotations.n_items, CENTRE))
        for _ in monitor:
            # E, and a Newton step of every β: what the labels say of the classes, and of the items' ease
            own = self._own(blocks, state.ease, log_given)
            parts = list(blocks.map(ease_step, own, ability=state.ability))
            off = ((state.ability - CENTRE) ** 2).sum() + ((state.ease - CENTRE) ** 2).sum()
            if monitor.report(float(sum(part[3] for part in parts)) - 0.5 * float(off), state):
                break
            # M: a Newton step of every α, by the share of it that raises Q most
            ease = np.concatenate([part[0] for part in parts])
            slope = np.sum([part[1] for part in parts], axis=0) - (state.ability - CENTRE)
            curvature = np.sum([part[2] for part in parts], axis=0) + 1.0
            tried = state.ability + np.outer(SHARES, slope / curvature)
            own = self._own(blocks, state.ease, log_given, ease)
            scores = np.sum(list(blocks.map(ability_step, own, ability=state.ability, moved=tried)), axis=0)
            best = (scores - 0.5 * (tried - CENTRE) ** 2).argmax(axis=0)
            state = State(tried[best, np.arange(len(best))], ease)
        self.abilities_, self.ease_ = state.ability, state.ease
        own = self._own(blocks, state.ease, log_given)
        posteriors = [w for w, _ in blocks.map(posterior_step, own, ability=state.ability)]
        self.posterior_, self.psi_ = np.concatenate(posteriors), np.full(P, 1.0 / P)
        self.confusion_ = self._coins(state.ability * np.exp(state.ease.mean()), P)  # on an average item
        self.trace_, self.stopped_ = np.array(monitor.trace), monitor.stopped
        self._finish(annotations.annotator_load)

    def _own(self, blocks: Blocks, *tables: Array) -> list[tuple[Array, ...]]:
        return [tuple(table[block.items] for table in tables) for block in blocks.blocks]

    def _coins(self, x: Array, P: int) -> Array:
        """(…, P, P): right with chance σ(x), any other class alike."""
        right = (expit(x) if P > 1 else np.ones_like(x))[..., None, None]
        return np.asarray(np.where(np.eye(P) > 0, right, (1 - right) / max(P - 1, 1)))

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Σ_k P(t_m = k) π_kp at the item's own ease; unseen ones are average."""
        ease = np.append(self.ease_, self.ease_.mean())[item]
        ability = np.append(self.abilities_, self.abilities_.mean())[annotator]
        w = np.vstack([self.posterior_, self.psi_])[item]
        right = expit(ability * np.exp(ease)) if w.shape[1] > 1 else np.ones(len(w))
        wrong = (1 - right) / max(w.shape[1] - 1, 1)
        # Σ_k w_k (σ [p = k] + (1 − σ)/(P − 1) [p ≠ k]) = (1 − σ)/(P − 1) + w_p (σ − (1 − σ)/(P − 1))
        return np.asarray(wrong[:, None] + w * (right - wrong)[:, None])

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        """One coin, worth four labels at the crowd's chance of being right."""
        P = counts.shape[1]
        right, load = np.einsum("nkk->n", counts), counts.sum(axis=(1, 2))
        crowd = float(np.trace(fitted.crowd_confusion_) / P)
        chance = (4 * crowd + right) / (4 + load)
        return self._coins(np.log(chance) - np.log1p(-np.minimum(chance, 1 - 1e-12)), P)

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        super()._apply(new, fitted, engine)
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        self.ease_ = np.append(fitted.ease_, fitted.ease_.mean())[item]
        self.abilities_ = np.append(fitted.abilities_, fitted.abilities_.mean())[annotator]

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: accuracy and ability."""
        return super().annotator_frame() | {"ability": self.abilities_}
