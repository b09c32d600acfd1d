"""A map as SVG: LDL-NM's items where t-SNE puts them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT, LEGEND = 640, 440, 190
# Okabe and Ito's colours, which colour-blind readers tell apart; then the same, darker.
COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"),
    *("#F0E442", "#000000", "#004C77", "#99690F", "#006B4F", "#8E3E00"),
)
TEXT = 'font-family="sans-serif" font-size="12" fill="#222"'


def scatter(points: NDArray[Any], classes: NDArray[Any], names: Sequence[str], title: str) -> str:
    """A dot an item, coloured by its most frequent label."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([WIDTH - LEGEND - 20, HEIGHT - 50])
    places = (points - low) / np.maximum(high - low, 1e-9) * room + np.array([10, 40])
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{_colour(c)}" fill-opacity="0.75"/>'
        for (x, y), c in zip(places, classes, strict=True)
    )
    present = [code for code in range(len(names)) if (classes == code).any()]
    return _svg(title, dots + _legend([(names[code], _colour(code)) for code in present]))


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    parts = []
    for row, (name, colour) in enumerate(entries):
        y, x = 60 + 20 * row, WIDTH - LEGEND + 10
        parts.append(
            f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="4"/>'
            f'<text x="{x + 24}" y="{y}" {TEXT}>{escape(name[:24])}</text>'
        )
    return "".join(parts)


def _colour(code: int) -> str:
    return COLOURS[int(code) % len(COLOURS)]


def _svg(title: str, content: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<text x="10" y="22" {TEXT} font-weight="bold">{escape(title)}</text>{content}</svg>\n'
    )
