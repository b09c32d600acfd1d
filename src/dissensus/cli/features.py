"""What is known of items beyond their labels: features from their text or from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dissensus.data.annotations import Annotations

PANEL = "Item features, for models that use them"


@dataclass(frozen=True, kw_only=True)
class ItemFeatures:
    """Features by embedding a text column of the items, or as a file has them."""

    text_column: Annotated[
        str | None,
        typer.Option(
            "--text-column", metavar="NAME", help="Embed this column of --items.", rich_help_panel=PANEL
        ),
    ] = None
    text_model: Annotated[
        str | None,
        typer.Option(
            "--text-model",
            metavar="NAME",
            help="A sentence-transformers model or its path (one that needs no network if left out).",
            rich_help_panel=PANEL,
        ),
    ] = None
    features: Annotated[
        Path | None,
        typer.Option(
            "--features",
            metavar="FILE",
            help="Features as .npy, .npz or .parquet, one row an item.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def attached(self, annotations: Annotations) -> Annotations:
        """The annotations with the features asked for."""
        if self.features is None and self.text_column is None:
            return annotations
        from dissensus.features.features import embed_items, read_features, with_features

        if self.features is not None:
            return with_features(annotations, read_features(self.features, annotations))
        return embed_items(annotations, self.text_column or "", model=self.text_model)
