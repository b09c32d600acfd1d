"""How much memory a fit takes, counted before it begins, and what stays on disk where that is too much.

What is counted: the process itself, the fitted model (a row per item), tables of annotators, the labels laid
out for steps, messages, and what the steps hold while they run. Files that are mapped (a store's columns) are
the system's to keep or drop, and are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dissensus.errors import DataError
from dissensus.labels.blocks import SHARD_LABELS, shards_a_block
from dissensus.params import PROCESS_BYTES, size_words

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations


# ---- what a fit takes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needs:
    """Bytes, by what they are for."""

    fixed: int  # the model, tables of annotators, and what stands beside them in the end
    layout_bytes: int  # a label's share of the layout its steps work on
    message_bytes: int  # of all pairs and items, in memory for two rounds
    working: int  # of a thread while it works on a block
    held: int = 0  # from the beginning to the end: what is known of each item beforehand


@dataclass(frozen=True)
class Plan:
    """What stays in memory."""

    share_in_memory: float = 1.0  # of the blocks: their messages stay; the others' are on disk
    labels_laid_out: int | None = None  # labels whose layout stays; others are laid out anew in every round


def planned(
    name: str,
    needs: Needs,
    n_labels: int,
    memory: int,
    *,
    n_threads: int,
    n_workers: int = 0,
    at_once: int = 1,
) -> Plan:
    """What a fit may keep in so much memory, or an error that says what it would need.

    ``name`` is the model's. ``n_threads`` are those that work on blocks: here, or all of a cluster's
    ``n_workers`` processes, which keep the messages of some blocks each. ``at_once`` such fits share what is
    allowed in all; ``memory`` is the part of this one.
    """
    least = least_bytes(needs, n_threads, n_workers)
    if least > memory:
        each, enough, fewer = "", "as much", "clusters, threads or workers"
        if at_once > 1:
            each, fewer = f" for each of {at_once} at once", "clusters, jobs or workers"
            enough = size_words(at_once * least)
        raise DataError(
            f"{name} on {n_labels:,} labels needs {size_words(least)} of memory at least, and "
            f"{size_words(memory)} are allowed{each}; allow {enough} with memory=, or use fewer {fewer}"
        )
    layouts = needs.layout_bytes * n_labels
    # A block may be worked on by any worker, so each of them must have room for what it keeps.
    in_process = (memory - least) // max(n_workers, 1)
    if layouts > in_process:
        return Plan(0.0 if needs.message_bytes else 1.0, in_process // needs.layout_bytes)
    if not needs.message_bytes:
        return Plan()
    if n_workers:
        return Plan(min(1.0, (memory - least - n_workers * layouts) / needs.message_bytes))
    # While rounds go on, messages of two of them are there and the model is not; at the end those of one are.
    room = memory - PROCESS_BYTES - needs.held - layouts - n_threads * needs.working
    return Plan(min(1.0, room / needs.message_bytes, 2 * (room - needs.fixed) / needs.message_bytes))


def least_bytes(needs: Needs, n_threads: int = 1, n_workers: int = 0) -> int:
    """What a fit takes with messages and layouts on disk."""
    return PROCESS_BYTES * (1 + n_workers) + needs.held + needs.fixed + n_threads * needs.working


def refuse_beyond(name: str, needs: Needs, n_labels: int, machine: int) -> None:
    """Refuse, before any work, what the machine cannot hold."""
    least = least_bytes(needs)
    if least > machine:
        raise DataError(
            f"{name} on {n_labels:,} labels needs {size_words(least)} of memory at least, and this machine "
            f"has {size_words(machine)}; use fewer clusters or classes, or a simpler model"
        )


def threads_that_fit(needs: Needs, memory: int, n_cores: int) -> int:
    """How many threads may work on blocks at once in so much memory; one at least."""
    room = memory - PROCESS_BYTES - needs.held - needs.fixed
    return max(1, min(n_cores, room // max(needs.working, 1)))


def block_labels(annotations: Annotations) -> int:
    """Labels of a block, about."""
    n_shards = -(-annotations.n_labels // SHARD_LABELS)
    return min(annotations.n_labels, shards_a_block(n_shards) * SHARD_LABELS)
