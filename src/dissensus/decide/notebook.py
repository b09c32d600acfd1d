"""The page in a cell of a notebook."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from dissensus.decide.server import DecideServer
from dissensus.decide.session import DecisionSession
from dissensus.workflow.refine import Refinement

CELL_HEIGHT = 760  # pixels
_open_views: dict[str, View] = {}  # by the folder or file; a cell that runs again replaces its page


class View:
    """A page that runs as long as the process; a notebook shows it in the cell."""

    def __init__(self, server: DecideServer) -> None:
        self.server = server

    def close(self) -> None:
        """Stop the page; its decisions stay in their file."""
        self.server.stop()

    @property
    def url(self) -> str:
        """Address of the page."""
        return self.server.url

    @property
    def decisions(self) -> dict[str, str | None]:
        """The decided class of each item; None where the person is unsure."""
        return {item: decision.class_name for item, decision in self.server.session.decisions.items()}

    def __repr__(self) -> str:
        return f"View({self.url})"

    def _repr_html_(self) -> str:
        address = html.escape(self.url)
        style = f"width: 100%; height: {CELL_HEIGHT}px; border: 1px solid #ccc"
        return f'<iframe src="{address}" title="dissensus: decide" style="{style}"></iframe>'


def view(labels: Any, folder: str | os.PathLike[str] | None = None) -> View:
    """Show the page on which items are decided, in a cell of a notebook or at the address ``url``.

    The page is served by this process, for browsers on this machine.

    Parameters
    ----------
    labels
        The result of :func:`dissensus.fit`, or the path of a file of labels or of a finished run.
    folder
        Directory of the decisions; None: ``votes-decisions`` beside ``votes.csv``, and ``labels-decisions``
        for a result.
    """
    key = str(folder or ("labels" if isinstance(labels, Refinement) else labels))
    if key in _open_views:
        _open_views.pop(key).close()
    session = DecisionSession(None if folder is None else Path(folder))
    server = DecideServer(session)
    if isinstance(labels, Refinement):
        session.show(labels.annotations, labels.model, labels.seed)
    else:
        session.open(Path(labels))
    server.start()
    _open_views[key] = View(server)
    return _open_views[key]
