"""What was worked out of a few labels, kept for the next fit to the same ones.

A search fits hundreds of models to the same split of the same labels. Their layout, and what else hangs on
the labels alone, takes as long as some iterations of a small fit, so it is made once. Of many labels nothing
is kept: it would take memory, and no time that counts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

from dissensus.labels.annotations import Annotations

Found = TypeVar("Found")

FEW_LABELS = 100_000
MOST_KEPT = 8  # things, of the same labels

_kept: WeakKeyDictionary[Annotations, OrderedDict[Hashable, object]] = WeakKeyDictionary()
_changing = threading.Lock()


def remembered(annotations: Annotations, what: Hashable, make: Callable[[], Found]) -> Found:
    """``make()``, or what it gave before for the same thing of the same labels: nobody may change it."""
    if annotations.n_labels > FEW_LABELS:
        return make()
    with _changing:
        own = _kept.setdefault(annotations, OrderedDict())
        found = own.get(what)
    if found is None:
        found = make()
    with _changing:
        own[what] = found
        own.move_to_end(what)
        while len(own) > MOST_KEPT:
            own.popitem(last=False)
    return found  # type: ignore[return-value]
