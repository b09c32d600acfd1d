"""Packing, seconds per iteration and memory from 10⁵ to 10⁸ labels.

    python -m benchmarks.scale [--most 100000000] [--folder DIR] [-o docs/results/scale.md]

Every figure is measured in a fresh process.
"""

from __future__ import annotations

import argparse
import hashlib
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

from benchmarks.crowds import SimulatedCrowd
from benchmarks.timing import PrivateMemory, in_fresh_process
from experiments.runner import check_limit, line, table, write_page

SIZES = (10**5, 10**6, 10**7, 10**8)
CLASSES = {"Dawid–Skene": 3, "PGM 8×8": 5}  # by model
N_ITERATIONS = 6
IN_MEMORY_LABELS = 10**7  # labels up to which files are also read into memory
MEMORY = "12GB"
PEER_SECONDS, PEER_BYTES = 400, 20 * 10**9
MAX_SECONDS, MAX_GIGABYTES = {"Dawid–Skene": 8.0, "PGM 8×8": 60.0}, 12.0  # at 10⁸ labels
MAX_EXPONENT, MAX_OVERHEAD_MS = 1.15, 60.0
SAME_BITS_LABELS = 10**6
CLUSTER_LABELS, PLANTED_SIZES = 10**7, (6, 4)
HEAD = (
    *("labels", "items M", "annotators N", "model", "labels from", "pack, s", "pack, GB"),
    *("s per iteration", "reading + rest, s", "memory, GB"),
)


# ---- single measurements, each in its own process -------------------------------------------------------


def write(n_labels: str, n_classes: str, folder: str) -> dict[str, Any]:
    """Write the files of a crowd, and the true clusters of its items."""
    np.save(f"{folder}.npy", SimulatedCrowd(int(n_labels), int(n_classes)).write(Path(folder)))
    return {}


def pack(folder: str, store: str) -> dict[str, Any]:
    """Write a store and return seconds and memory."""
    import dissensus as ds

    start = time.perf_counter()
    with PrivateMemory() as memory:
        ds.write_store(folder, store)
    return {"seconds": time.perf_counter() - start, "memory": memory.peak}


def fit(model: str, source: str, **resources: Any) -> dict[str, Any]:
    """Fit a few iterations and return the median seconds per iteration, other seconds, and memory."""
    import pyarrow as pa
    from pyarrow import parquet

    import dissensus as ds

    moments: list[float] = []
    start = time.perf_counter()
    with PrivateMemory(children="cluster" in resources) as memory:
        labels: Any = source
        if not source.endswith(".store"):  # read into memory, ids as text, in the order of a store
            files = parquet.read_table(source)
            labels = pa.table({name: files[name].cast(pa.string()) for name in files.column_names})
        annotations = ds.read_annotations(labels)
        read = time.perf_counter()
        with ds.resources(progress=lambda *_: moments.append(time.perf_counter()), **resources):
            fitted = build(model, N_ITERATIONS).fit(annotations)
    end = time.perf_counter()
    seconds = float(np.median(np.diff(moments)))
    return {
        "seconds": seconds,
        "read": read - start,
        "rest": end - read - len(fitted.trace_) * seconds,
        "memory": memory.peak,
        "bits": digest(fitted),
        "M": annotations.n_items,
        "N": annotations.n_annotators,
    }


def fit_on_disk(model: str, source: str) -> dict[str, Any]:
    """Fit in the least memory, so that all messages go to disk, and count their files."""
    import dissensus as ds

    annotations = ds.read_annotations(source)
    n_files: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        count_files = lambda *_: n_files.append(len(list(Path(folder).rglob("array-*"))))  # noqa: E731
        least = build(model, 1).memory_needed(annotations)
        with ds.resources(memory=least, scratch=folder, progress=count_files):
            fitted = build(model, N_ITERATIONS).fit(annotations)
    return {"bits": digest(fitted), "files": min(n_files)}


def fit_on_one_thread(model: str, source: str) -> dict[str, Any]:
    """Fit on one thread and return the bits."""
    import dissensus as ds

    return {"bits": digest(build(model, N_ITERATIONS).set_params(n_jobs=1).fit(ds.read_annotations(source)))}


def build(model: str, iterations: int) -> Any:
    """Return an unfitted model by its name."""
    import dissensus as ds

    settings = {"max_iter": iterations, "tol": 0.0, "n_jobs": 2}
    return ds.PGM(8, 8, **settings) if model.startswith("PGM") else ds.DawidSkene(**settings)


def digest(fitted: Any) -> str:
    """Return a digest of all fitted arrays."""
    sha = hashlib.sha256()
    for name in (*fitted._arrays, "label_distributions_", "trace_"):
        sha.update(np.ascontiguousarray(getattr(fitted, name)).tobytes())
    return sha.hexdigest()


def fit_peer(folder: str) -> dict[str, Any]:
    """Return seconds per iteration of crowd-kit's Dawid–Skene, from fits of 1 and of 3 iterations."""
    resource.setrlimit(resource.RLIMIT_AS, (PEER_BYTES, PEER_BYTES))
    import pyarrow.parquet as pq
    from crowdkit.aggregation import DawidSkene

    times = []
    with PrivateMemory() as memory:
        frame = pq.read_table(folder).to_pandas(strings_to_categorical=False)
        frame = frame.rename(columns={"item": "task", "annotator": "worker"})
        for iterations in (1, 3):
            start = time.perf_counter()
            DawidSkene(n_iter=iterations, tol=-float("inf")).fit(frame)
            times.append(time.perf_counter() - start)
    return {"seconds": (times[1] - times[0]) / 2, "memory": memory.peak}


def single_precision(store: str) -> dict[str, Any]:
    """Compare fits of PGM 8 × 8 in double and in single precision."""
    import dissensus as ds

    annotations = ds.read_annotations(store)
    seconds, fits = {}, {}
    for name in ("double", "single"):
        start = time.perf_counter()
        with ds.resources(precision=name):
            fits[name] = build("PGM", 30).fit(annotations)
        seconds[name] = time.perf_counter() - start
    double, single = fits["double"], fits["single"]
    return {
        "distribution": float(np.abs(double.label_distributions_ - single.label_distributions_).max()),
        "same_label": float((double.predict() == single.predict()).mean()),
        "objective": float(abs(double.trace_[-1] - single.trace_[-1]) / annotations.n_labels),
        "seconds": seconds["single"] / seconds["double"],
    }


def planted_clusters(store: str, clusters: str) -> dict[str, Any]:
    """Compare fitted and true clusters (adjusted Rand index) of a PGM with the true sizes, three starts."""
    from sklearn.metrics import adjusted_rand_score

    import dissensus as ds

    annotations = ds.read_annotations(store)
    fitted = ds.PGM(*PLANTED_SIZES, n_restarts=3, max_iter=60, n_jobs=2).fit(annotations)
    item = np.load(clusters)[annotations.items.astype(np.int64)]
    theta, annotator, *_ = SimulatedCrowd(annotations.n_labels, annotations.n_classes).parameters()
    annotator = annotator[annotations.annotators.astype(np.int64)]
    # The best possible: log P(w_m, labels) from the true Θ and the true clusters of the annotators.
    best = np.empty((annotations.n_items, len(theta)))
    for k in range(len(theta)):
        terms = np.log(theta)[k][annotator[annotations.annotator], annotations.label]
        best[:, k] = np.add.reduceat(terms, annotations.item_pointers[:-1])
    estimate = fitted.annotator_clusters_.argmax(axis=1)
    busy = annotations.annotator_load >= 20
    return {
        "items": adjusted_rand_score(item, fitted.item_clusters_.argmax(axis=1)),
        "ceiling": adjusted_rand_score(item, best.argmax(axis=1)),
        "annotators": adjusted_rand_score(annotator, estimate),
        "busy": adjusted_rand_score(annotator[busy], estimate[busy]),
        "busy_share": float(busy.mean()),
    }


def dask_overhead() -> dict[str, Any]:
    """Return the additional seconds of a round of four shards on two Dask workers."""
    import dissensus as ds
    from dissensus import engine
    from dissensus.models.pgm.kernels import PairBlock

    annotations = ds.simulate(20_000, 2_000, 5, labels_per_item=5, load="long-tail").annotations
    engine.LABELS_PER_SHARD = -(-annotations.n_labels // 4)
    z = np.random.default_rng(0).dirichlet(np.ones(8), annotations.n_annotators)
    seconds = {}
    with (
        ds.resources(cluster="local", n_workers=2) as resources,
        resources.engine(ds.PGM(), annotations, {}) as remote,
    ):
        for name, engine_used in (("local", engine.Engine()), ("Dask", remote)):
            blocks = engine_used.blocks(annotations, PairBlock.of)
            times = []
            for _ in range(60):
                start = time.perf_counter()
                n_shards = len(list(blocks.map(trivial_step, z=z)))
                times.append(time.perf_counter() - start)
            seconds[name] = float(np.median(times[10:]))
    return {"seconds": seconds["Dask"] - seconds["local"], "shards": n_shards}


def trivial_step(block: Any, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what a round returns, almost without computing."""
    return block.codes, z[block.codes]


MEASUREMENTS = {
    "write": write,
    "pack": pack,
    "fit": fit,
    "fit in 12 GB": lambda model, source: fit(model, source, memory=MEMORY),
    "fit on disk": fit_on_disk,
    "fit on one thread": fit_on_one_thread,
    "fit on Dask": lambda model, source, n: fit(model, source, cluster="local", n_workers=int(n)),
    "peer": fit_peer,
    "planted clusters": planted_clusters,
    "single precision": single_precision,
    "Dask overhead": dask_overhead,
}


def measured(name: str, *arguments: object) -> dict[str, Any]:
    """Run one measurement in a fresh process."""
    return in_fresh_process("benchmarks.scale", "--measure", name, *arguments)


def check_same_bits(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Stop the benchmark if two fits differ in any bit."""
    if first["bits"] != second["bits"]:
        raise SystemExit("two fits to the same labels have different bits")
    return "same bits"


# ---- the page -------------------------------------------------------------------------------------------

PAGE = """# Scale

Written by `python -m benchmarks.scale`. Labels are simulated: five per item, a long-tailed crowd with one
annotator per thousand labels, items in random order. Dawid–Skene has 3 classes and PGM 8 × 8 has 5; an
iteration of PGM is one round of messages in both directions and the M-step. Every figure is from a fresh
process on two threads. "Memory" is the peak of private memory, without mapped files. crowd-kit's Dawid–Skene
gets the same labels, {peer_gigabytes} GB and {peer_seconds} seconds.

{table}

{findings}
"""


def size_lines(folder: Path, n_labels: int) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Measure one size; return the lines of the table and the fits to the store, by model."""
    lines, fits = [], {}
    for model, P in CLASSES.items():
        files, store = folder / f"{n_labels}-{P}", folder / f"{n_labels}-{P}.store"
        if not store.exists():
            measured("write", n_labels, P, files)
        packed = measured("pack", files, f"{store}.timed")
        shutil.rmtree(store, ignore_errors=True)
        Path(f"{store}.timed").rename(store)
        stored = fits[model] = measured("fit in 12 GB", model, store)
        sizes = f"{n_labels:,}", f"{stored['M']:,}", f"{stored['N']:,}"
        pack_cells = f"{packed['seconds']:.1f}", f"{packed['memory'] / 1e9:.2f}"
        lines.append(line(*sizes, model, "store", *pack_cells, *fit_cells(stored)))
        if n_labels <= IN_MEMORY_LABELS:
            loaded = measured("fit", model, files)
            origin = f"memory, {check_same_bits(loaded, stored)}"
            lines.append(line(*sizes, model, origin, "–", "–", *fit_cells(loaded)))
        if n_labels == IN_MEMORY_LABELS:
            remote = measured("fit on Dask", model, store, 2)
            origin = f"store, 2 Dask workers, {check_same_bits(remote, stored)}"
            lines.append(line(*sizes, model, origin, "–", "–", *fit_cells(remote)))
        if model.startswith("Dawid"):
            lines.append(line(*sizes, "crowd-kit", "memory", "–", "–", *peer_cells(files)))
        print(*lines[-4:], sep="\n", flush=True)
    return lines, fits


def fit_cells(values: dict[str, Any]) -> tuple[str, str, str]:
    """Format the cells of a fit."""
    rest = f"{values['read']:.1f} + {values['rest']:.1f}"
    return f"{values['seconds']:.3g}", rest, f"{values['memory'] / 1e9:.2f}"


def peer_cells(files: Path) -> tuple[str, str, str]:
    """Measure crowd-kit, or say why it did not finish."""
    command = [sys.executable, "-m", "benchmarks.scale", "--measure", "peer", str(files)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PEER_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        return f"not done after {PEER_SECONDS} s", "–", "–"
    except subprocess.CalledProcessError as error:
        reason = "out of memory" if "emory" in error.stderr or error.returncode < 0 else "failed"
        return f"{reason} (limit {PEER_BYTES / 1e9:.0f} GB)", "–", "–"
    values = json.loads(ended.stdout.splitlines()[-1])
    return f"{values['seconds']:.3g}", "–", f"{values['memory'] / 1e9:.2f}"


def exponent_findings(fits: dict[int, dict[str, Any]], findings: list[str]) -> int:
    """Report the slope of log seconds against log labels, from a million labels on."""
    sizes = [size for size in fits if size >= 10**6] or list(fits)
    missed = 0
    for model in CLASSES:
        seconds = [fits[size][model]["seconds"] for size in sizes]
        slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(sizes) > 1 else 1.0
        findings.append(f"{model}: seconds per iteration grow as labels^{slope:.2f} (from 10⁶ labels).")
        missed |= check_limit(f"{model}, exponent of the cost", slope, MAX_EXPONENT)
    return missed


def same_bits_findings(folder: Path, findings: list[str]) -> int:
    """Report whether a million labels give the same bits on threads, in memory, on Dask and on disk."""
    missed = 0
    for model, P in CLASSES.items():
        files, store = folder / f"{SAME_BITS_LABELS}-{P}", folder / f"{SAME_BITS_LABELS}-{P}.store"
        bits = {
            "one thread": measured("fit on one thread", model, store)["bits"],
            "two threads": measured("fit", model, store)["bits"],
            "in memory": measured("fit", model, files)["bits"],
            "Dask, 2 processes": measured("fit on Dask", model, store, 2)["bits"],
            "Dask, 4 processes": measured("fit on Dask", model, store, 4)["bits"],
        }
        if model.startswith("PGM"):
            on_disk = measured("fit on disk", model, store)
            bits[f"messages on disk ({on_disk['files']} files)"] = on_disk["bits"]
            missed |= int(not on_disk["files"])
        same = len(set(bits.values())) == 1
        missed |= int(not same)
        verdict = "the same bits" if same else "DIFFERENT BITS"
        labels = f"{SAME_BITS_LABELS:,} labels, {N_ITERATIONS} iterations"
        findings.append(f"{model}, {labels}: {', '.join(bits)}: {verdict}.")
    return missed


def other_findings(folder: Path, findings: list[str]) -> int:
    """Report planted clusters, single precision and the overhead of Dask."""
    store = folder / f"{CLUSTER_LABELS}-5.store"
    if store.exists():
        values = measured("planted clusters", store, folder / f"{CLUSTER_LABELS}-5.npy")
        K, L = PLANTED_SIZES
        findings.append(
            f"Planted clusters at {CLUSTER_LABELS:,} labels, PGM {K} × {L} (adjusted Rand index): annotators "
            f"{values['annotators']:.3f}, annotators with at least 20 labels ({values['busy_share']:.0%}) "
            f"{values['busy']:.3f}; items with five labels each {values['items']:.3f}, and "
            f"{values['ceiling']:.3f} with the true parameters and annotator clusters."
        )
    store = folder / f"{SAME_BITS_LABELS}-5.store"
    if store.exists():
        values = measured("single precision", store)
        findings.append(
            f'precision="single", PGM 8×8, {SAME_BITS_LABELS:,} labels, 30 iterations: messages take half '
            f"the memory and a fit {values['seconds']:.2f} of the time; probabilities differ by at most "
            f"{values['distribution']:.1e}, {values['same_label']:.4%} of the items keep their label, and "
            f"the objective differs by {values['objective']:.1e} per label."
        )
    values = measured("Dask overhead")
    milliseconds = values["seconds"] * 1e3
    findings.append(
        f"On Dask (two local workers) a round of {values['shards']} shards takes {milliseconds:.0f} ms "
        f"more than on threads (at most {MAX_OVERHEAD_MS:.0f})."
    )
    return check_limit("overhead of a Dask round, ms", milliseconds, MAX_OVERHEAD_MS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="largest number of labels")
    parser.add_argument("--folder", type=Path, help="where files are written and kept; default: temporary")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results/scale.md"))
    options = parser.parse_args()
    lines, findings, fits = list[str](), list[str](), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for n_labels in (size for size in SIZES if size <= options.most):
            new_lines, fits[n_labels] = size_lines(folder, n_labels)
            lines += new_lines
        missed = exponent_findings(fits, findings)
        for model, limit in MAX_SECONDS.items() if SIZES[-1] in fits else ():
            largest = fits[SIZES[-1]][model]
            missed |= check_limit(f"{model}, seconds per iteration at 10^8", largest["seconds"], limit)
            missed |= check_limit(f"{model}, GB of memory at 10^8", largest["memory"] / 1e9, MAX_GIGABYTES)
        if SAME_BITS_LABELS in fits:
            missed |= same_bits_findings(folder, findings)
        missed |= other_findings(folder, findings)
    limits = {"peer_gigabytes": f"{PEER_BYTES / 1e9:.0f}", "peer_seconds": PEER_SECONDS}
    text = PAGE.format(table=table(HEAD, lines), findings="\n\n".join(findings), **limits)
    write_page(options.output, text)
    return missed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(MEASUREMENTS[sys.argv[2]](*sys.argv[3:])))
        sys.exit()
    sys.exit(main())
