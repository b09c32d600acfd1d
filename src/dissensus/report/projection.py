"""Two dimensions for the eye: embeddings by t-SNE."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.errors import DataError, bad_parameter, require
from dissensus.numerics import Array
from dissensus.params import n_cores


def project_2d(
    embeddings: Any, *, perplexity: float = 30.0, n_iter: int = 500, seed: int = 0, n_jobs: int = 1
) -> Array:
    """(rows, 2): t-SNE of the rows (van der Maaten and Hinton 2008), by openTSNE.

    Rows that were close stay close; distances between far groups mean nothing. A perplexity that is too large
    for few rows is lowered to (rows − 1) / 3. The seed replays the picture at one ``n_jobs`` (−1: all cores).

    Parameters
    ----------
    embeddings
        (rows, numbers): what to project.
    perplexity
        About how many neighbours each row has.
    n_iter
        Iterations of the optimisation.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    n_jobs
        Number of threads; −1 takes all cores. The picture depends on it.
    """
    rows = _checked(embeddings)
    if not perplexity > 0:
        raise bad_parameter("project_2d", "perplexity", "a float > 0", perplexity)
    opentsne = require("openTSNE", "report")
    n = len(rows)
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
        n_jobs=n_cores() if n_jobs == -1 else n_jobs,
    )
    return np.asarray(tsne.fit(rows), dtype=np.float64)


def _checked(rows: Any) -> Array:
    array = np.asarray(rows, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise DataError(f"embeddings must be a (rows, columns) array; got shape {array.shape}")
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise DataError(f"row {bad} of the embeddings has NaN or infinity; correct it")
    return array
