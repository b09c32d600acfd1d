"""Lines with error bars as a small SVG: named series of intervals over shared, evenly spaced marks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from dissensus.evaluation.intervals import Interval
from dissensus.paper.figures import COLOURS, TEXT

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 450, 50, 345  # of the axes; the legend stands to their right
CAP = 3  # half the width of an error bar's end

Points = Mapping[str, Interval]  # mark on the horizontal axis -> value and interval


@dataclass(frozen=True)
class Axes:
    """Where marks and values stand in the picture."""

    marks: Sequence[str]
    low: float
    high: float

    @classmethod
    def of(cls, series: Mapping[str, Points]) -> Axes:
        """Room for every interval, and marks in the order in which they first come."""
        intervals = [one for points in series.values() for one in points.values()]
        low, high = min(one.low for one in intervals), max(one.high for one in intervals)
        room = 0.05 * (high - low) or 0.1
        marks = dict.fromkeys(mark for points in series.values() for mark in points)
        return cls(list(marks), low - room, high + room)

    def x(self, mark: str) -> float:
        """Marks stand evenly, half a step away from either end."""
        return LEFT + (self.marks.index(mark) + 0.5) / len(self.marks) * (RIGHT - LEFT)

    def y(self, value: float) -> float:
        """From the bottom up."""
        return BOTTOM - (value - self.low) / (self.high - self.low) * (BOTTOM - TOP)

    def ticks(self) -> list[float]:
        """Round values, three to eight of them."""
        step = 10.0 ** math.floor(math.log10(self.high - self.low))
        step = next(s for s in (step / 5, step / 2, step) if (self.high - self.low) / s <= 7)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step) + 1)]


def curves(series: Mapping[str, Points], title: str, x_name: str, y_name: str) -> str:
    """The picture: one line a series, an error bar at every mark; series stand a little apart."""
    axes = Axes.of(series)
    shifts = np.linspace(-6, 6, len(series)) if len(series) > 1 else np.zeros(1)
    drawn = [_frame(axes, x_name, y_name)]
    for number, (points, shift) in enumerate(zip(series.values(), shifts, strict=True)):
        drawn.append(_line(axes, points, COLOURS[number % len(COLOURS)], float(shift)))
    drawn += [_entry(number, name) for number, name in enumerate(series)]
    head = f'<text x="10" y="22" {TEXT} font-weight="bold">{escape(title)}</text>'
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{head}{"".join(drawn)}</svg>\n'
    )


def _line(axes: Axes, points: Points, colour: str, shift: float) -> str:
    places = [(axes.x(mark) + shift, one) for mark, one in points.items()]
    path = " ".join(f"{x:.1f},{axes.y(one.value):.1f}" for x, one in places)
    bars = "".join(
        f'<path d="M{x - CAP:.1f} {axes.y(one.low):.1f}h{2 * CAP}m-{CAP} 0V{axes.y(one.high):.1f}'
        f'm-{CAP} 0h{2 * CAP}" fill="none" stroke="{colour}"/>'
        f'<circle cx="{x:.1f}" cy="{axes.y(one.value):.1f}" r="2.5" fill="{colour}"/>'
        for x, one in places
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


def _entry(number: int, name: str) -> str:
    x, y = RIGHT + 20, TOP + 14 + 20 * number
    colour = COLOURS[number % len(COLOURS)]
    words = f'<text x="{x + 24}" y="{y}" {TEXT}>{escape(name)}</text>'
    return f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="4"/>{words}'
