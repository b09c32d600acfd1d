"""BLAS on one thread: it may sum in another order with more, and contends with ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_changing = threading.Lock()
_limit: Any = None
_n_inside = 0


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread while anybody in this process is inside; the first to come sets it, the last restores."""
    from threadpoolctl import threadpool_limits

    global _limit, _n_inside
    with _changing:
        if _n_inside == 0:
            _limit = threadpool_limits(limits=1, user_api="blas")
        _n_inside += 1
    try:
        yield
    finally:
        with _changing:
            _n_inside -= 1
            if _n_inside == 0:
                _limit.restore_original_limits()
