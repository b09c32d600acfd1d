"""The paper's pictures of what LDL-NM learns: t-SNE of its embeddings."""

from __future__ import annotations

import numpy as np

from dissensus.errors import require
from dissensus.numerics import Array


def project_2d(rows: Array, *, perplexity: float = 30.0, n_iter: int = 500, seed: int = 0) -> Array:
    """(rows, 2): t-SNE of the rows (van der Maaten and Hinton 2008), by openTSNE.

    Rows that were close stay close; distances between far groups mean nothing. A perplexity (about how many
    neighbours each row has) that is too large for few rows is lowered to (rows − 1) / 3.
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
        # Exact neighbours and gradients for few rows: quicker there, and nothing approximate to explain.
        neighbors="exact" if n <= 2_000 else "auto",
        negative_gradient_method="bh" if n <= 2_000 else "auto",
        random_state=seed,
        n_jobs=1,
    )
    return np.asarray(tsne.fit(rows), dtype=np.float64)
