"""What a model that keeps draws of its posterior knows: intervals, pairs, clusters, annotators."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.vocabulary import Codes
from dissensus.models.clusters import ClusterView
from dissensus.models.hpgm.draws import AnnotatorDraw, Draws, annotator_draws, co_clustering, spaced
from dissensus.models.hpgm.view import QUANTITIES
from dissensus.models.results import make_frame
from dissensus.models.sampled import Sampled, ends
from dissensus.numerics import Array, row_shares
from dissensus.params import SEED, check_rules, choice, fitted, setting

MOST_PAIRED = 5_000  # annotators or items whose co-clustering is one table


class Posterior(Sampled):
    """A fitted model read off its draws; how they come about is the affair of its subclass."""

    _draw_arrays = tuple(f"{name}_draws_" for name in Draws.__dataclass_fields__)
    quantities_ = QUANTITIES

    _: KW_ONLY
    seed: int = setting(0, *SEED)

    annotator_weights_: Array = fitted("(N,): what each annotator counts in the population")

    @property
    def draws_(self) -> Draws:
        """The whole draws that were kept, chain after chain."""
        return Draws(*(getattr(self, name) for name in self._draw_arrays))

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Mean over draws of (1 − λ) Σ_k P(w_m = k) E π_nk + λ E ρ_m."""
        draws, total = self.draws_, np.zeros((len(item), len(self.classes_)))
        for t in range(len(draws.z)):
            beliefs = np.vstack([draws.beliefs[t], draws.psi[t]])[item]
            matrices = np.concatenate([draws.matrices[t], draws.population[t].T[None]])[annotator]
            own = np.vstack([draws.own[t], draws.psi[t] @ draws.phi[t]])[item]
            lam = draws.numbers[t, 2]
            total += (1 - lam) * np.einsum("epk,ek->ep", matrices, beliefs) + lam * own
        return row_shares(total)

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """The clusters of the draw that is most like all draws (Dahl 2006), those that are not empty."""
        del annotator_load
        self._check_fitted()
        draws, t = self.draws_, self._typical_draw()
        K = np.unique(draws.beliefs[t].argmax(axis=1))
        L, z = np.unique(draws.z[t], return_inverse=True)
        beliefs, psi = draws.beliefs[t][:, K].astype(np.float64), draws.psi[t][K].astype(np.float64)
        members = np.eye(len(L))[z]
        theta = draws.theta[t][np.ix_(K, L)].astype(np.float64)
        weights = self.annotator_weights_ @ members
        lam = draws.numbers[t, 2]
        return ClusterView(
            items=beliefs / beliefs.sum(axis=1, keepdims=True),
            annotators=members,
            theta=theta / theta.sum(axis=2, keepdims=True),
            psi=psi / psi.sum(),
            omega=members.mean(axis=0),
            weights=weights,
            population=row_shares((1 - lam) * draws.population[t][K] + lam * draws.phi[t][K]),
            annotator_weights=self.annotator_weights_,
        )

    def _typical_draw(self) -> int:
        """The draw whose items are together most as they are on average, judged by some hundred items."""
        beliefs = self.draws_.beliefs
        chosen = np.linspace(0, beliefs.shape[1] - 1, min(300, beliefs.shape[1])).astype(int)
        cluster = beliefs[:, chosen].argmax(axis=2)
        together = cluster[:, :, None] == cluster[:, None, :]
        usual = together.mean(axis=0)
        return int(np.argmin([((one - usual) ** 2).sum() for one in together]))

    def annotator_draws(self) -> list[AnnotatorDraw]:
        """What each whole draw says of every annotator: information, agreement, confusion."""
        self._check_fitted()
        return list(annotator_draws(self.draws_, self.seed))

    def annotator_frame(self, interval: float = 0.9) -> dict[str, Any]:
        """Columns about annotators: cluster, information and agreement with their intervals.

        Parameters
        ----------
        interval
            Size of the credible intervals, such as 0.9.
        """
        view, found = self.cluster_view(), self.annotator_draws()
        assert view.annotators is not None
        columns: dict[str, Any] = {"cluster": view.annotators.argmax(axis=1)}
        for name in ("information", "agreement"):
            drawn = np.stack([getattr(draw, name) for draw in found])
            low, high = np.quantile(drawn, ends(interval), axis=0)
            known = {"": drawn.mean(axis=0), "_low": low, "_high": high}
            columns |= {f"model_{name}{end}": values for end, values in known.items()}
        return columns

    def confusion_frame(self, interval: float = 0.9) -> Any:
        """One row for each annotator, each answer of the population and each answer of theirs.

        ``p`` is the chance that the annotator answers ``label`` where the population answers ``population``;
        ``low`` and ``high`` are its credible interval.

        Parameters
        ----------
        interval
            Size of the credible intervals, such as 0.9.
        """
        drawn = np.stack([draw.confusion.astype(np.float32) for draw in self.annotator_draws()])
        low, high = np.quantile(drawn, ends(interval), axis=0)
        N, P = drawn.shape[1:3]
        columns = {
            "annotator": np.repeat(self.annotators_, P * P),
            "population": np.tile(np.repeat(self.classes_, P), N),
            "label": np.tile(self.classes_, N * P),
            "p": drawn.mean(axis=0).ravel(),
            "low": low.ravel(),
            "high": high.ravel(),
        }
        return make_frame(columns, self.frame_kind_)

    def co_clustering(self, what: str = "annotators", ids: Any = None) -> Array:
        """P(two of them are in one cluster), over ``ids`` (None: all ``"annotators"`` or ``"items"``).

        It does not depend on how clusters are numbered, so it can be read where cluster numbers cannot.

        Parameters
        ----------
        what
            ``"annotators"`` or ``"items"``.
        ids
            Ids to compare; None: all.
        """
        self._check_fitted()
        check_rules("co_clustering", {"what": choice("annotators", "items")}, what=what)
        vocabulary = self.annotator_vocabulary_ if what == "annotators" else self.item_vocabulary_
        codes = np.arange(len(vocabulary)) if ids is None else vocabulary.codes(ids)
        if (codes < 0).any():
            stranger = list(ids)[int(np.argmax(codes < 0))]
            raise DataError(f"{what[:-1]} {stranger!r} is not among the fitted ones; name those of the fit")
        if len(codes) > MOST_PAIRED:
            raise DataError(f"{len(codes):,} {what} make too large a table; name at most {MOST_PAIRED:,} ids")
        if what == "items":
            return co_clustering(self.draws_.beliefs[:, codes])
        return co_clustering(np.eye(self.draws_.omega.shape[1])[self.draws_.z[:, codes]])

    def to_inference_data(self) -> Any:
        """The draws as ArviZ holds them: ``share`` (items, classes), concentrations and what was traced."""
        self._check_fitted()
        from dissensus.errors import require

        arviz = require("arviz", "arviz")
        C, n_kept = self.trace_draws_.shape[:2]
        shares = self.share_draws_.reshape(C, -1, *self.share_draws_.shape[1:])
        kept = [t for t in range(n_kept) if spaced(t, n_kept, shares.shape[1]) is not None]
        traces = self.trace_draws_[:, kept].transpose(2, 0, 1)
        usual = {"log-likelihood": "lp", "λ": "lambda"}  # ArviZ means another table by log_likelihood
        names = [usual.get(name, name.replace(" ", "_")) for name in QUANTITIES]
        posterior = {"share": shares, **dict(zip(names, traces, strict=True))}
        axes = {
            "coords": {"item": self.items_, "label": self.classes_},
            "dims": {"share": ["item", "label"]},
        }
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict({"posterior": posterior}, **axes)
        return arviz.from_dict(posterior=posterior, **axes)
