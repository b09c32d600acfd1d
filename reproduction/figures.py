"""Figures as small SVG files: scatter plots, and curves with error bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.evaluate.bootstrap import Interval

WIDTH = 640
# The palette of Okabe and Ito, which is safe for colour-blind readers; then darker versions.
COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"),
    *("#F0E442", "#000000", "#004C77", "#99690F", "#006B4F", "#8E3E00"),
)
TEXT = 'font-family="sans-serif" font-size="12" fill="#222"'


def _colour(number: int) -> str:
    return COLOURS[int(number) % len(COLOURS)]


def _legend(names: Mapping[str, int], x: float, y: float) -> str:
    """Draw names with their colours, one below the other."""
    parts = []
    for row, (name, number) in enumerate(names.items()):
        at = y + 20 * row
        parts.append(
            f'<path d="M{x} {at - 4}h18" stroke="{_colour(number)}" stroke-width="4"/>'
            f'<text x="{x + 24}" y="{at}" {TEXT}>{escape(name)}</text>'
        )
    return "".join(parts)


def _svg(title: str, height: int, content: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
        f'<text x="10" y="22" {TEXT} font-weight="bold">{escape(title)}</text>{content}</svg>\n'
    )


# ---- scatter ------------------------------------------------------------------------------------------

MAP_HEIGHT, MAP_LEGEND = 440, 190


def scatter(points: NDArray[Any], classes: NDArray[Any], names: Sequence[str], title: str) -> str:
    """Draw a dot per item, coloured by its most frequent label."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([WIDTH - MAP_LEGEND - 20, MAP_HEIGHT - 50])
    positions = (points - low) / np.maximum(high - low, 1e-9) * room + np.array([10, 40])
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{_colour(c)}" fill-opacity="0.75"/>'
        for (x, y), c in zip(positions, classes, strict=True)
    )
    present = {name[:24]: code for code, name in enumerate(names) if (classes == code).any()}
    return _svg(title, MAP_HEIGHT, dots + _legend(present, WIDTH - MAP_LEGEND + 10, 60))


# ---- lines with error bars ----------------------------------------------------------------------------

CURVES_HEIGHT = 400
LEFT, RIGHT, TOP, BOTTOM = 60, 450, 50, 345  # edges of the axes; the legend is to the right
CAP = 3  # half the width of the ends of an error bar

Points = Mapping[str, Interval]  # value and interval by mark on the horizontal axis


@dataclass(frozen=True)
class Axes:
    """Positions of marks and values in the picture."""

    marks: Sequence[str]
    low: float
    high: float

    @classmethod
    def of(cls, series: Mapping[str, Points]) -> Axes:
        """Return axes that fit every interval, with marks in order of first appearance."""
        intervals = [interval for points in series.values() for interval in points.values()]
        low, high = min(i.low for i in intervals), max(i.high for i in intervals)
        room = 0.05 * (high - low) or 0.1
        marks = dict.fromkeys(mark for points in series.values() for mark in points)
        return cls(list(marks), low - room, high + room)

    def x(self, mark: str) -> float:
        """Return the position of a mark; marks are evenly spaced, half a step from either end."""
        return LEFT + (self.marks.index(mark) + 0.5) / len(self.marks) * (RIGHT - LEFT)

    def y(self, value: float) -> float:
        """Return the position of a value, measured from the top."""
        return BOTTOM - (value - self.low) / (self.high - self.low) * (BOTTOM - TOP)

    def ticks(self) -> list[float]:
        """Return three to eight round values."""
        step = 10.0 ** math.floor(math.log10(self.high - self.low))
        step = next(s for s in (step / 5, step / 2, step) if (self.high - self.low) / s <= 7)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step) + 1)]


def curves(series: Mapping[str, Points], title: str, x_name: str, y_name: str) -> str:
    """Draw one line per series with an error bar at every mark; series are slightly shifted."""
    axes = Axes.of(series)
    shifts = np.linspace(-6, 6, len(series)) if len(series) > 1 else np.zeros(1)
    drawn = [_frame(axes, x_name, y_name)]
    for number, (points, shift) in enumerate(zip(series.values(), shifts, strict=True)):
        drawn.append(_line(axes, points, _colour(number), float(shift)))
    drawn.append(_legend({name: number for number, name in enumerate(series)}, RIGHT + 20, TOP + 14))
    return _svg(title, CURVES_HEIGHT, "".join(drawn))


def _line(axes: Axes, points: Points, colour: str, shift: float) -> str:
    positions = [(axes.x(mark) + shift, interval) for mark, interval in points.items()]
    path = " ".join(f"{x:.1f},{axes.y(interval.value):.1f}" for x, interval in positions)
    bars = "".join(
        f'<path d="M{x - CAP:.1f} {axes.y(i.low):.1f}h{2 * CAP}m-{CAP} 0V{axes.y(i.high):.1f}'
        f'm-{CAP} 0h{2 * CAP}" fill="none" stroke="{colour}"/>'
        f'<circle cx="{x:.1f}" cy="{axes.y(i.value):.1f}" r="2.5" fill="{colour}"/>'
        for x, i in positions
    )
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{bars}'


def _frame(axes: Axes, x_name: str, y_name: str) -> str:
    parts = []
    for tick in axes.ticks():
        y = axes.y(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="#e3e3e3"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" {TEXT}>{tick:.3g}</text>')
    if axes.low < 0 < axes.high:
        parts.append(f'<path d="M{LEFT} {axes.y(0):.1f}H{RIGHT}" stroke="#777" stroke-dasharray="5 4"/>')
    parts.append(f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#222"/>')
    for mark in axes.marks:
        at = f'x="{axes.x(mark):.1f}" y="{BOTTOM + 18}"'
        parts.append(f'<text {at} text-anchor="middle" {TEXT}>{escape(mark)}</text>')
    middle = f'x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 40}" text-anchor="middle"'
    parts.append(f"<text {middle} {TEXT}>{escape(x_name)}</text>")
    parts.append(f'<text x="{LEFT}" y="{TOP - 10}" {TEXT}>{escape(y_name)}</text>')
    return "".join(parts)


def best_models(numbers: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the model with the lowest KL of every group and number of labels, chosen in hindsight."""
    best: dict[tuple[int, str], dict[str, Any]] = {}
    for row in numbers["models"]:
        key = row["labels_shown"], row["name"]
        if key not in best or row["kl"] < best[key]["kl"]:
            best[key] = row
    return [best[key] for key in sorted(best)]


def recovery_curve(name: str, numbers: dict[str, Any]) -> str:
    """Draw the KL to reserved labels by labels shown: counts, the best model of each kind, and the floor."""
    counts = {
        str(point["labels_shown"]): Interval(point["value"], point["low"], point["high"])
        for point in numbers["counts"]
    }
    series: dict[str, dict[str, Interval]] = {"smoothed counts": counts}
    for row in best_models(numbers):
        interval = Interval(row["kl"], row["low"], row["high"])
        series.setdefault(row["name"], {})[str(row["labels_shown"])] = interval
    series["sampling floor"] = dict.fromkeys(counts, Interval(*[numbers["floor"]] * 3))
    title = f"{name}: the population from few labels, with 95 % intervals"
    return curves(series, title, "labels shown per item", "KL(reserved labels ‖ estimate), nats")
