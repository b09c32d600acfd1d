"""How close models come to the population with how few labels, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dissensus.evaluation.intervals import Interval
from dissensus.paper.curves import curves
from dissensus.paper.tables import best_models

FLOOR = "sampling floor"


def recovery_curve(name: str, numbers: Mapping[str, Any]) -> str:
    """KL to the labels kept back by how many were shown: counts, the best model of each kind, the floor."""
    counts = {
        str(point["labels_shown"]): Interval(point["value"], point["low"], point["high"])
        for point in numbers["counts"]
    }
    series: dict[str, dict[str, Interval]] = {"smoothed counts": counts}
    for found in best_models(numbers):
        interval = Interval(found["kl"], found["low"], found["high"])
        series.setdefault(found["name"], {})[str(found["labels_shown"])] = interval
    series[FLOOR] = dict.fromkeys(counts, Interval(*[numbers["floor"]] * 3))
    title = f"{name}: the population from few labels, with 95 % intervals"
    return curves(series, title, "labels shown per item", "KL(labels kept back ‖ estimate), nats")
