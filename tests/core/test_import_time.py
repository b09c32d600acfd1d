"""``import dissensus`` is quick, and what is heavy loads when it is used."""

import subprocess
import sys

import pytest

HEAVY = [
    *("numpy", "scipy", "pandas", "polars", "pyarrow", "narwhals", "safetensors", "threadpoolctl", "sklearn"),
    *("torch", "transformers", "sentence_transformers", "typer", "rich", "plotly", "openTSNE", "dask"),
    *("distributed", "crowdkit", "cleanlab"),
]
LIMIT_SECONDS = 0.35


def run(code: str) -> str:
    """Return the output of the code in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def heavy_modules_after(code: str) -> list[str]:
    loaded = run(f"{code}\nimport sys; print(*[name for name in {HEAVY!r} if name in sys.modules])")
    return loaded.split()


def test_importing_loads_nothing_heavy() -> None:
    assert heavy_modules_after("import dissensus") == []
    assert heavy_modules_after("import dissensus; dir(dissensus); dissensus.__version__") == []


def test_constructors_of_learners_load_nothing_large() -> None:
    learners = "ds.LDLNM(); ds.GuidedClassifier(); ds.text.SoftmaxRegression(); ds.text.FineTunedEncoder()"
    loaded = heavy_modules_after(f"import dissensus as ds; {learners}")
    assert {"torch", "sentence_transformers", "sklearn", "transformers"}.isdisjoint(loaded)


def test_importing_is_quick() -> None:
    # Processor time, and the best of several: the machine may be busy with something else.
    code = "import time; start = time.process_time(); import dissensus; print(time.process_time() - start)"
    assert min(float(run(code)) for _ in range(5)) < LIMIT_SECONDS


@pytest.mark.slow
def test_a_fit_loads_neither_scikit_learn_nor_torch() -> None:
    loaded = heavy_modules_after("import dissensus as ds; ds.FMM(2).fit(ds.simulate(20, 5, 3).annotations)")
    assert "scipy" in loaded
    assert {"sklearn", "torch", "typer", "plotly", "dask"}.isdisjoint(loaded)


# A fit, and a search on processes whose criterion tells what its process has loaded.
PLAIN_PATH = """
import sys
import dissensus as ds

def machinery(*_):
    return sorted(n for n in sys.modules if n.startswith(("dissensus.large", "distributed", "dask")))

labels = ds.simulate(40, 10, 3).annotations
ds.PGM(2, 2).fit(labels)

def score(model, annotations, seed):
    model.fit(annotations)
    return float(len(machinery()))

found = ds.select(labels, ds.PGM(), {"n_item_clusters": [2, 3]}, criterion=score, n_jobs=2, references={})
print(machinery(), {row["score"] for row in found.rows()})
"""


@pytest.mark.slow
def test_neither_a_fit_nor_a_search_on_processes_loads_the_machinery_of_large_runs() -> None:
    assert run(PLAIN_PATH) == "[] {0.0}"


@pytest.mark.slow
def test_every_public_name_loads() -> None:
    code = "import dissensus as ds; print(all(getattr(ds, name) is not None for name in dir(ds)))"
    assert run(code) == "True"
