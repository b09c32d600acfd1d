"""Pictures as SVG: a map of LDL-NM's items, and how close models come with how few labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.experiments.reproduction.tables import best_models

WIDTH, HEIGHT, MARGIN, LEGEND = 640, 440, 56, 190
# Okabe and Ito's colours, which colour-blind readers tell apart; then the same, darker.
COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"),
    *("#F0E442", "#000000", "#004C77", "#99690F", "#006B4F", "#8E3E00"),
)
TEXT = 'font-family="sans-serif" font-size="12" fill="#222"'

Series = Mapping[str, Sequence[tuple[float, float]]]


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
    return _svg(title, dots + _legend([(names[code], _colour(code), "") for code in present]))


def lines(series: Series, title: str, x_name: str, y_name: str, floor: float | None = None) -> str:
    """Named lines over a shared pair of axes; ``floor`` is drawn dashed."""
    xs = sorted({x for points in series.values() for x, _ in points})
    highest = max(y for points in series.values() for _, y in points) * 1.05

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - xs[0]) / max(xs[-1] - xs[0], 1e-9)
        return MARGIN + across * (WIDTH - LEGEND - MARGIN - 10), HEIGHT - 50 - y / highest * (HEIGHT - 100)

    drawn = [_axes(xs, highest, place, x_name, y_name)]
    for number, points in enumerate(series.values()):
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in (place(x, y) for x, y in points))
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{_colour(number)}" stroke-width="2"/>')
    entries = [(name, _colour(number), "") for number, name in enumerate(series)]
    if floor is not None:
        (a, y), (b, _) = place(xs[0], floor), place(xs[-1], floor)
        dashed = 'stroke="#777" stroke-dasharray="5 4"'
        drawn.append(f'<line x1="{a:.1f}" y1="{y:.1f}" x2="{b:.1f}" y2="{y:.1f}" {dashed}/>')
        entries.append(("sampling floor", "#777", "dashed"))
    return _svg(title, "".join(drawn) + _legend(entries))


def recovery_curve(name: str, numbers: Mapping[str, Any]) -> str:
    """KL to the labels kept back by how many labels were shown: counts, and the best model of each kind."""
    series: dict[str, list[tuple[float, float]]] = {
        "smoothed counts": [(point["labels_shown"], point["value"]) for point in numbers["counts"]]
    }
    for found in best_models(numbers):
        series.setdefault(found["name"], []).append((found["labels_shown"], found["kl"]))
    title = f"{name}: the population from few labels"
    return lines(series, title, "labels shown per item", "KL, nats", numbers["floor"])


def _axes(xs: Sequence[float], highest: float, place: Any, x_name: str, y_name: str) -> str:
    left, bottom = place(xs[0], 0.0)
    right, top = place(xs[-1], highest)
    step = 10 ** math.floor(math.log10(highest))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if highest / s <= 6)
    parts = [f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" stroke="#222"/>']
    for x in xs:
        at = place(x, 0.0)[0]
        parts.append(f'<text x="{at:.1f}" y="{bottom + 18:.1f}" text-anchor="middle" {TEXT}>{x:g}</text>')
    for tick in np.arange(0, highest, step):
        at = place(xs[0], tick)[1]
        grid = f'<line x1="{left:.1f}" y1="{at:.1f}" x2="{right:.1f}" y2="{at:.1f}" stroke="#e3e3e3"/>'
        parts.append(
            f'{grid}<text x="{left - 8:.1f}" y="{at + 4:.1f}" text-anchor="end" {TEXT}>{tick:.3g}</text>'
        )
    middle = (left + right) / 2
    parts.append(f'<text x="{middle:.1f}" y="{bottom + 38:.1f}" text-anchor="middle" {TEXT}>{x_name}</text>')
    parts.append(f'<text x="{left:.1f}" y="{top - 8:.1f}" {TEXT}>{y_name}</text>')
    return "".join(parts)


def _legend(entries: Sequence[tuple[str, str, str]]) -> str:
    parts = []
    for row, (name, colour, style) in enumerate(entries):
        y, x = 60 + 20 * row, WIDTH - LEGEND + 10
        dash = ' stroke-dasharray="5 4"' if style else ""
        parts.append(
            f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="4"{dash}/>'
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
