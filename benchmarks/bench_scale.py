"""From a hundred thousand labels to a hundred million: packing, seconds an iteration, memory; in one table.

Labels are simulated (crowds.py): five an item, one annotator per thousand labels, a long-tailed crowd, items
in no order. Dawid–Skene has 3 classes, PGM 8 × 8 has 5; an iteration of PGM is one round of messages in both
directions and the M-step. Every figure is from a fresh process on two threads. "memory" is the most that was
the process's own at any moment, pages of mapped files apart. crowd-kit's Dawid–Skene gets the same labels, a
limit of memory and a limit of time.

    python benchmarks/bench_scale.py [--most 100000000] [--folder DIR] [--write docs/results/scale.md]
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from crowds import Crowd
from timing import OwnMemory, in_fresh_process, verdict

SIZES = (10**5, 10**6, 10**7, 10**8)
CLASSES = {"Dawid–Skene": 3, "PGM 8×8": 5}
ITERATIONS = 6
IN_MEMORY = 10**7  # labels up to which files are also read into memory
MEMORY = "12GB"
PEER_SECONDS, PEER_BYTES = 400, 20 * 10**9
LIMITS = {"Dawid–Skene": 8.0, "PGM 8×8": 60.0}
DASK_LABELS = 10**6
CLUSTER_LABELS, PLANTED = 10**7, (6, 4)


# ---- single measurements, each in a process of its own --------------------------------------------------


def write(n_labels: int, n_classes: int, folder: str) -> dict[str, Any]:
    """The files of a crowd, and the items' true clusters beside them."""
    np.save(f"{folder}.npy", Crowd(n_labels, n_classes).write(Path(folder)))
    return {}


def pack(folder: str, store: str) -> dict[str, Any]:
    """Packing."""
    import dissensus as ds

    start = time.perf_counter()
    with OwnMemory() as own:
        ds.write_store(folder, store)
    size = sum(file.stat().st_size for file in Path(store).iterdir())
    return {"seconds": time.perf_counter() - start, "memory": own.most, "bytes": size}


def fit(model: str, source: str, *, iterations: int = ITERATIONS, **given: Any) -> dict[str, Any]:
    """One fit of some iterations: seconds an iteration (the median), seconds of all else, memory."""
    import dissensus as ds

    moments: list[float] = []
    started = time.perf_counter()
    with OwnMemory(children="cluster" in given) as own:
        annotations = ds.read_annotations(table(source) if in_memory(source) else source)
        read = time.perf_counter()
        with ds.resources(progress=lambda what, share: moments.append(time.perf_counter()), **given):
            fitted = built(model, iterations).fit(annotations)
    ended = time.perf_counter()
    return {
        "seconds": float(np.median(np.diff(moments))),
        "read": read - started,
        "rest": ended - read - len(fitted.trace_) * float(np.median(np.diff(moments))),
        "memory": own.most,
        "bits": fingerprint(fitted),
        "M": annotations.n_items,
        "N": annotations.n_annotators,
    }


def in_memory(source: str) -> bool:
    """Files are read into memory; a store is not."""
    return not source.endswith(".store")


def table(folder: str) -> Any:
    """The files as one table, ids as text, which is how a store orders them."""
    import pyarrow as pa
    from pyarrow import parquet

    whole = parquet.read_table(folder)
    return pa.table({name: whole[name].cast(pa.string()) for name in whole.column_names})


def built(model: str, iterations: int) -> Any:
    """The model of a name."""
    import dissensus as ds

    common = {"max_iter": iterations, "tol": 0.0, "n_jobs": 2}
    return ds.PGM(8, 8, **common) if model.startswith("PGM") else ds.DawidSkene(**common)


def fingerprint(fitted: Any) -> str:
    """A digest of everything a fit has learned."""
    import hashlib

    digest = hashlib.sha256()
    for name in (*fitted._arrays, "label_distributions_", "trace_"):
        digest.update(np.ascontiguousarray(getattr(fitted, name)).tobytes())
    return digest.hexdigest()


def peer(folder: str) -> dict[str, Any]:
    """crowd-kit's Dawid–Skene: seconds an iteration out of fits of 1 and of 3."""
    resource.setrlimit(resource.RLIMIT_AS, (PEER_BYTES, PEER_BYTES))
    import pyarrow.parquet as pq
    from crowdkit.aggregation import DawidSkene

    names = {"item": "task", "annotator": "worker"}
    times = []
    with OwnMemory() as own:
        frame = pq.read_table(folder).to_pandas(strings_to_categorical=False).rename(columns=names)
        for iterations in (1, 3):
            start = time.perf_counter()
            DawidSkene(n_iter=iterations, tol=-float("inf")).fit(frame)
            times.append(time.perf_counter() - start)
    return {"seconds": (times[1] - times[0]) / 2, "memory": own.most}


def precision(store: str) -> dict[str, Any]:
    """What single precision changes in a PGM 8 × 8 of thirty iterations, and what it saves."""
    import dissensus as ds

    annotations = ds.read_annotations(store)
    took, fits = {}, {}
    for name in ("double", "single"):
        start = time.perf_counter()
        with ds.resources(precision=name):
            fits[name] = built("PGM", 30).fit(annotations)
        took[name] = time.perf_counter() - start
    one, other = fits["double"], fits["single"]
    return {
        "distribution": float(np.abs(one.label_distributions_ - other.label_distributions_).max()),
        "same_label": float((one.predict() == other.predict()).mean()),
        "objective": float(abs(one.trace_[-1] - other.trace_[-1]) / annotations.n_labels),
        "seconds": took["single"] / took["double"],
    }


def clusters_found(store: str, clusters: str) -> dict[str, Any]:
    """How well the true clusters are found: PGM of their number, the best of three starts."""
    from sklearn.metrics import adjusted_rand_score

    import dissensus as ds

    annotations = ds.read_annotations(store)
    fitted = ds.PGM(*PLANTED, n_restarts=3, max_iter=60, n_jobs=2).fit(annotations)
    item = np.load(clusters)[annotations.items.astype(np.int64)]
    _, annotator, _, _ = Crowd(annotations.n_labels, annotations.n_classes).parameters()
    annotator = annotator[annotations.annotators.astype(np.int64)]
    found = fitted.annotator_clusters_.argmax(axis=1)
    busy = annotations.annotator_load >= 20
    return {
        "items": adjusted_rand_score(item, fitted.item_clusters_.argmax(axis=1)),
        "ceiling": adjusted_rand_score(item, known_posterior(annotations, annotator).argmax(axis=1)),
        "annotators": adjusted_rand_score(annotator, found),
        "busy": adjusted_rand_score(annotator[busy], found[busy]),
        "busy_share": float(busy.mean()),
    }


def known_posterior(annotations: Any, annotator: np.ndarray) -> np.ndarray:
    """(items, K): log P(w_m, labels) with Θ and the annotators' clusters known: nobody does better."""
    theta, *_ = Crowd(annotations.n_labels, annotations.n_classes).parameters()
    logs = np.log(theta)
    posterior = np.empty((annotations.n_items, len(theta)))
    for k in range(len(theta)):
        terms = logs[k][annotator[annotations.annotator], annotations.label]
        posterior[:, k] = np.add.reduceat(terms, annotations.item_pointers[:-1])
    return posterior


def overhead() -> dict[str, Any]:
    """Seconds that a round of four shards takes on two Dask workers beyond the same round here."""
    import dissensus as ds
    from dissensus import engine
    from dissensus.models.pgm.kernels import PairBlock

    annotations = ds.simulate(20_000, 2_000, 5, labels_per_item=5, load="long-tail").annotations
    engine.LABELS_PER_SHARD = -(-annotations.n_labels // 4)
    z = np.random.default_rng(0).dirichlet(np.ones(8), annotations.n_annotators)
    took = {}
    with (
        ds.resources(cluster="local", n_workers=2) as found,
        found.engine(ds.PGM(), annotations, {}) as remote,
    ):
        for name, one in (("here", engine.Engine()), ("Dask", remote)):
            blocks = one.blocks(annotations, PairBlock.of)
            times = []
            for _ in range(60):
                start = time.perf_counter()
                n_parts = len(list(blocks.map(touch, z=z)))
                times.append(time.perf_counter() - start)
            took[name] = float(np.median(times[10:]))
    return {"seconds": took["Dask"] - took["here"], "shards": n_parts}


def touch(block: Any, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A step that computes next to nothing and returns what a round returns."""
    return block.who, z[block.who]


MEASUREMENTS = {
    "write": lambda n, P, folder: write(int(n), int(P), folder),
    "pack": pack,
    "fit": lambda model, source: fit(model, source),
    "fit in 12 GB": lambda model, source: fit(model, source, memory=MEMORY),
    "fit on disk": lambda model, source: fit_on_disk(model, source),
    "fit one thread": lambda model, source: fit_one_thread(model, source),
    "fit on Dask": lambda model, source, n: fit(model, source, cluster="local", n_workers=int(n)),
    "peer": peer,
    "clusters_found": clusters_found,
    "precision": precision,
    "overhead": overhead,
}


def fit_on_disk(model: str, source: str) -> dict[str, Any]:
    """The same fit in the least memory there is: every message goes to disk, and is seen there."""
    import dissensus as ds

    annotations = ds.read_annotations(source)
    seen: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        look = lambda what, share: seen.append(len(list(files.rglob("array-*"))))  # noqa: E731
        least = built(model, 1).memory_needed(annotations)
        with ds.resources(memory=least, scratch=folder, progress=look):
            fitted = built(model, ITERATIONS).fit(annotations)
    return {"bits": fingerprint(fitted), "files": min(seen)}


def fit_one_thread(model: str, source: str) -> dict[str, Any]:
    """The same fit on one thread, for its bits."""
    import dissensus as ds

    fitted = built(model, ITERATIONS).set_params(n_jobs=1).fit(ds.read_annotations(source))
    return {"bits": fingerprint(fitted)}


# ---- the page -------------------------------------------------------------------------------------------


class Report:
    """Lines for the terminal and for the page, as they come."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str = "") -> None:
        """One line."""
        print(line, flush=True)
        self.lines.append(line)


def measured(what: str, *arguments: object) -> dict[str, Any]:
    """One measurement."""
    return in_fresh_process(__file__, "--measure", what, *arguments)


def sized(folder: Path, n_labels: int, say: Any) -> dict[str, dict[str, Any]]:
    """The rows of one size; what was measured on the store, by model."""
    found = {}
    for model, P in CLASSES.items():
        files, store = folder / f"{n_labels}-{P}", folder / f"{n_labels}-{P}.store"
        if not store.exists():
            measured("write", n_labels, P, files)
        packed = measured("pack", files, f"{store}.timed")
        shutil.rmtree(store, ignore_errors=True)
        Path(f"{store}.timed").rename(store)
        here = measured("fit in 12 GB", model, store)
        sizes = f"{n_labels:,} | {here['M']:,} | {here['N']:,} | {model}"
        pack_cells = f"{packed['seconds']:.1f} | {packed['memory'] / 1e9:.2f}"
        say(f"| {sizes} | store | {pack_cells} | {cells(here)} |")
        found[model] = here
        if n_labels <= IN_MEMORY:
            loaded = measured("fit", model, files)
            same = alike(loaded, here)
            say(f"| {sizes} | memory, {same} | – | – | {cells(loaded)} |")
        if n_labels == IN_MEMORY:
            remote = measured("fit on Dask", model, store, 2)
            same = alike(remote, here)
            say(f"| {sizes} | store, 2 Dask workers, {same} | – | – | {cells(remote)} |")
        if model.startswith("Dawid"):
            say(f"| {sizes.replace(model, 'crowd-kit')} | memory | – | – | {peer_cells(files)} |")
    return found


def alike(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Stops where bits differ: nothing else would be worth measuring."""
    if one["bits"] != other["bits"]:
        raise SystemExit("the same labels gave other bits")
    return "same bits"


def cells(one: dict[str, Any]) -> str:
    return f"{one['seconds']:.3g} | {one['read']:.1f} + {one['rest']:.1f} | {one['memory'] / 1e9:.2f}"


def peer_cells(files: Path) -> str:
    """What crowd-kit did, or why not."""
    command = [sys.executable, __file__, "--measure", "peer", str(files)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PEER_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        return f"not done after {PEER_SECONDS} s | – | –"
    except subprocess.CalledProcessError as error:
        reason = "out of memory" if "emory" in error.stderr or error.returncode < 0 else "failed"
        return f"{reason} (limit {PEER_BYTES / 1e9:.0f} GB) | – | –"
    one = json.loads(ended.stdout.splitlines()[-1])
    return f"{one['seconds']:.3g} | – | {one['memory'] / 1e9:.2f}"


def main(most: int, folder: Path, page: Path | None) -> int:
    report, found = Report(), {}
    say = report.say
    say("| labels | items M | annotators N | model | labels from | pack, s | pack, GB | s an iteration | "
        "reading + all else, s | memory, GB |")  # fmt: skip
    say("|---|---|---|---|---|---|---|---|---|---|")
    for n_labels in (size for size in SIZES if size <= most):
        found[n_labels] = sized(folder, n_labels, say)
    say()
    status = exponents(found, say)
    if most >= SIZES[-1]:
        for model, limit in LIMITS.items():
            largest = found[SIZES[-1]][model]
            status |= verdict(f"{model}, seconds an iteration at 10^8", largest["seconds"], limit)
            status |= verdict(f"{model}, GB of memory at 10^8", largest["memory"] / 1e9, 12)
    if DASK_LABELS in found:
        status |= same_bits(folder, say)
    found_again(folder, say)
    if DASK_LABELS in found:
        single(folder, say)
    one = measured("overhead")
    say(f"\nOn Dask (two workers, loopback) a round of {one['shards']} shards takes "
        f"{one['seconds'] * 1e3:.0f} ms more than here (at most 60).")  # fmt: skip
    status |= verdict("overhead of a Dask round, ms", one["seconds"] * 1e3, 60)
    if page is not None:
        text = (__doc__ or "").split("\n\n    python")[0]
        page.write_text("# Scale, measured\n\n" + text + "\n\n" + "\n".join(report.lines) + "\n")
    return status


def exponents(found: dict[int, dict[str, Any]], say: Any) -> int:
    """The slope of log seconds against log labels, from a million labels on."""
    sizes = [size for size in found if size >= 10**6] or list(found)
    status = 0
    for model in CLASSES:
        seconds = [found[size][model]["seconds"] for size in sizes]
        slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(sizes) > 1 else 1.0
        say(
            f"{model}: seconds an iteration grow with labels to the power {slope:.2f} (from 10⁶ labels on).\n"
        )
        status |= verdict(f"{model}, exponent of the cost", slope, 1.15)
    return status


def same_bits(folder: Path, say: Any) -> int:
    """Are a million labels' results the same however they are computed?"""
    status = 0
    for model, P in CLASSES.items():
        files, store = folder / f"{DASK_LABELS}-{P}", folder / f"{DASK_LABELS}-{P}.store"
        ways = {
            "one thread": measured("fit one thread", model, store)["bits"],
            "two threads": measured("fit", model, store)["bits"],
            "in memory": measured("fit", model, files)["bits"],
            "Dask, 2 processes": measured("fit on Dask", model, store, 2)["bits"],
            "Dask, 4 processes": measured("fit on Dask", model, store, 4)["bits"],
        }
        if model.startswith("PGM"):
            on_disk = measured("fit on disk", model, store)
            ways[f"messages on disk ({on_disk['files']} files)"] = on_disk["bits"]
            status |= int(not on_disk["files"])
        same = len(set(ways.values())) == 1
        status |= int(not same)
        word = "the same bits" if same else "OTHER BITS"
        say(f"{model}, {DASK_LABELS:,} labels, {ITERATIONS} iterations: {', '.join(ways)}: {word}.\n")
    return status


def single(folder: Path, say: Any) -> None:
    """What single precision does."""
    one = measured("precision", folder / f"{DASK_LABELS}-5.store")
    say(f'\nprecision="single", PGM 8×8, {DASK_LABELS:,} labels, 30 iterations: messages take half the room '
        f"and a fit {one['seconds']:.2f} of the time; no probability of a label differs by more than "
        f"{one['distribution']:.1e}, {one['same_label']:.4%} of the items keep their label, the objective "
        f"differs by {one['objective']:.1e} a label.")  # fmt: skip


def found_again(folder: Path, say: Any) -> None:
    """The true clusters found again, if the size was among those measured."""
    store = folder / f"{CLUSTER_LABELS}-5.store"
    if not store.exists():
        return
    one = measured("clusters_found", store, folder / f"{CLUSTER_LABELS}-5.npy")
    K, L = PLANTED
    say(f"Planted clusters at {CLUSTER_LABELS:,} labels, PGM {K} × {L} (adjusted Rand index): "
        f"annotators {one['annotators']:.3f}, those with 20 labels or more ({one['busy_share']:.0%}) "
        f"{one['busy']:.3f}; items, of five labels each, {one['items']:.3f}, and {one['ceiling']:.3f} for "
        f"who knows the parameters and every annotator's cluster.")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(MEASUREMENTS[sys.argv[2]](*sys.argv[3:])))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--folder", type=Path, help="Where files go and stay; default: a temporary one.")
    parser.add_argument("--write", type=Path, help="A page for the figures.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(given.most, given.folder or Path(temporary), given.write))
