"""Ids that differ by white space or case only, looked for in little memory."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dissensus.data.vocabulary import folded, may_look_alike
from dissensus.io.read import alike_words
from dissensus.io.store.budget import Budget
from dissensus.io.store.raw import IdFile

_PIECE = 1 << 18  # ids looked at together
_MEMORY = 40  # bytes for each id: its digest, and that sorted twice


def alike_notes(ids: IdFile, what: str, budget: Budget) -> list[str]:
    """What :func:`dissensus.read_annotations` notes of such ids, with one digest an id in memory."""
    pieces = [range(at, min(at + _PIECE, len(ids))) for at in range(0, len(ids), _PIECE)]
    if not any(may_look_alike(ids.read(piece)) for piece in pieces):
        return []
    budget.check(
        _MEMORY * len(ids), f"looking through {len(ids):,} {what}s", "give shorter ids in lower case"
    )
    digests = np.concatenate([_digests(ids, piece) for piece in pieces])
    return _note(ids, digests, what)


def _digests(ids: IdFile, piece: range) -> NDArray[np.uint64]:
    """A number for each id, the same for those that look alike (and, once in 2⁶⁴, for two that do not)."""
    texts = (folded(name).encode() for name in ids.read(piece).to_pylist())
    return np.frombuffer(b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts), np.uint64)


def _note(ids: IdFile, digests: NDArray[np.uint64], what: str) -> list[str]:
    distinct, counts = np.unique(digests, return_counts=True)
    shared = distinct[counts > 1]
    if not len(shared):
        return []
    first = int(np.flatnonzero(np.isin(digests, shared))[0])
    second = int(np.flatnonzero(digests == digests[first])[1])
    example = [ids.key(row).decode() for row in (first, second)]
    return [alike_words(int(counts[counts > 1].sum()), what, example)]
