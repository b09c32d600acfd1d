"""Two dimensions for the eye: embeddings by t-SNE, and a plot coloured by anything known of the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_parameter, require
from dissensus.numerics import Array
from dissensus.params import n_cores
from dissensus.tables.atomic import atomic_path

MOST_COLOURS = 24  # more distinct values than these, and numbers get a continuous scale


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


def plot_2d(
    points: Any,
    colour: Any = None,
    *,
    path: str | Path | None = None,
    title: str = "",
    colour_name: str = "",
    hover: Any = None,
) -> Any:
    """A scatter plot of (rows, 2) points, coloured by label class, cluster or any other column.

    ``colour`` has one value for each row; many different numbers get a scale, anything else a colour each.
    ``hover`` has one text for each row. With ``path`` the plot is written as one self-contained HTML file
    that needs no network. Returns the plotly figure.

    Parameters
    ----------
    points
        (rows, 2): where each row is.
    colour
        One value for each row.
    path
        A file to write; None writes none.
    title
        Title of the plot.
    colour_name
        What the colours stand for.
    hover
        One text for each row.
    """
    spots = _checked(points)
    if spots.shape[1] != 2:
        raise DataError(f"points have {spots.shape[1]} columns; project them with project_2d first")
    for name, values in (("colour", colour), ("hover", hover)):
        if values is not None and len(values) != len(spots):
            raise DataError(f"{name} has {len(values)} values for {len(spots)} points; give one a point")
    graph, values = require("plotly.graph_objects", "report"), None if colour is None else np.asarray(colour)
    said = None if hover is None else np.array([str(text) for text in hover], dtype=object)
    figure = graph.Figure()
    if values is None:
        figure.add_trace(_dots(graph, spots, said))
    elif values.dtype.kind in "fiu" and len(np.unique(values)) > MOST_COLOURS:
        figure.add_trace(_dots(graph, spots, said, color=values, colorbar={"title": colour_name}))
    else:
        names = values.astype(str)
        for name in np.unique(names):
            mine = names == name
            figure.add_trace(_dots(graph, spots[mine], None if said is None else said[mine], str(name)))
    figure.update_layout(title=title, template="plotly_white", legend_title=colour_name)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, scaleanchor="x")
    if path is not None:
        with atomic_path(path) as temporary:
            html = figure.to_html(include_plotlyjs=True, full_html=True)
            temporary.write_text(html, encoding="utf-8")
    return figure


def _dots(graph: Any, spots: Array, hover: NDArray[Any] | None, name: str = "", **marker: Any) -> Any:
    return graph.Scatter(
        x=spots[:, 0],
        y=spots[:, 1],
        mode="markers",
        marker={"size": 6, **marker},
        name=name,
        text=None if hover is None else hover.tolist(),
        hoverinfo="name" if hover is None else "text+name",
        showlegend=bool(name),
    )


def _checked(rows: Any) -> Array:
    array = np.asarray(rows, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise DataError(f"embeddings must be a (rows, columns) array; got shape {array.shape}")
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise DataError(f"row {bad} of the embeddings has NaN or infinity; correct it")
    return array
