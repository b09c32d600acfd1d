"""t-SNE of LDL-NM's embeddings, as in the paper's figures."""

from __future__ import annotations

import numpy as np

from dissensus.errors import require
from dissensus.numerics import Array


def project_2d(rows: Array, *, perplexity: float = 30.0, n_iter: int = 500, seed: int = 0) -> Array:
    """Project rows to two dimensions by t-SNE (van der Maaten and Hinton 2008), with openTSNE.

    Neighbours stay close; distances between far groups have no meaning. The perplexity (roughly the number
    of neighbours) is at most (rows − 1) / 3.
    """
    opentsne = require("openTSNE", "dev")
    rows, n = np.asarray(rows, dtype=np.float64), len(rows)
    if n < 4:  # too few for neighbours: the first two coordinates of the centred rows
        flat = np.zeros((n, 2))
        flat[:, : min(2, rows.shape[1])] = (rows - rows.mean(axis=0))[:, :2]
        return flat
    tsne = opentsne.TSNE(
        perplexity=min(perplexity, (n - 1) / 3),
        n_iter=n_iter,
        # exact neighbours and gradients are faster for few rows
        neighbors="exact" if n <= 2_000 else "auto",
        negative_gradient_method="bh" if n <= 2_000 else "auto",
        random_state=seed,
        n_jobs=1,
    )
    return np.asarray(tsne.fit(rows), dtype=np.float64)
