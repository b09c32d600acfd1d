"""Run the tests of the core with the lowest or the newest versions that pyproject.toml allows.

``python tests/helpers/core_versions.py lowest`` creates an environment without extras, in ``.venv-core`` or
in the folder given as second argument.
"""

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["pytest", "polars", "hypothesis", "scikit-learn"]  # packages that the tests need
FILES = [
    "labels/test_annotations", "labels/test_vocabulary", "core/test_params", "core/test_metrics",
    "labels/test_simulation", "labels/test_description", "models/test_counting", "models/test_fmm",
    "models/test_pgm", "models/test_cbcc", "datasets/test_datasets", "cli/test_info",
    "core/test_import_time", "tables/test_atomic", "tables/test_write", "models/test_new_model",
    "tables/test_arrays", "large/test_store",
]  # fmt: skip
SKIPPED = "not slow and not data and not browser and not cluster and not torch and not verify"


def requirements(versions: str) -> list[str]:
    """Return the requirements of the core and pandas: the lowest versions, or any allowed ones."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["pandas"]]
    return [re.sub(">=", "==", line) if versions == "lowest" else line for line in lines]


def main(versions: str, folder: str = ".venv-core") -> None:
    """Install the package, run the tests, and exit with their exit code."""
    directory = Path(folder).resolve()
    venv.create(directory, with_pip=True, clear=True)
    python = directory / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*install, *requirements(versions), *TOOLS], check=True)
    subprocess.run([*install, "--no-deps", str(ROOT)], check=True)
    files = [f"tests/{name}.py" for name in FILES]
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", SKIPPED, *files]
    sys.exit(subprocess.run(tests, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
