"""The page in a cell of a notebook."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from dissensus.decide.room import Room
from dissensus.decide.server import DecideServer
from dissensus.workflow.refine import Refinement

CELL_HEIGHT = 760  # pixels


class View:
    """A page that runs as long as the process; a notebook shows it in the cell."""

    def __init__(self, server: DecideServer) -> None:
        self.server = server

    @property
    def url(self) -> str:
        """Address of the page."""
        return self.server.url

    @property
    def decisions(self) -> dict[str, str | None]:
        """The decided class of each item; None where the person is unsure."""
        return {item: decision.class_name for item, decision in self.server.room.decisions.items()}

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
        Directory of the decisions; None: ``<name>-decisions``, ``labels-decisions`` for a result.
    """
    room = Room(None if folder is None else Path(folder))
    server = DecideServer(room)
    if isinstance(labels, Refinement):
        room.show(labels.annotations, labels.model, labels.seed)
    else:
        room.open(Path(labels))
    server.start()
    return View(server)
