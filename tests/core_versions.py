"""Runs the tests of the core with the lowest, or the newest, versions that pyproject.toml allows.

``python tests/core_versions.py lowest`` makes an environment without any extra: ``.venv-core``, or the
folder that is the second word.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ["pytest", "polars", "hypothesis", "scikit-learn"]  # the tests compare with the last
FILES = [
    *("test_annotations", "test_vocabulary", "test_params", "test_metrics", "test_simulation"),
    *("test_description", "test_counting", "test_fmm", "test_pgm", "test_cbcc"),
    *("test_datasets", "test_environment", "test_import_time", "test_io_atomic", "test_io_write"),
    *("test_new_model", "test_files", "test_store"),
]
SKIPPED = "not slow and not data and not browser and not cluster and not torch and not verify"


def requirements(versions: str) -> list[str]:
    """What the core and its frames need: the least version of each package, or any that is new enough."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    given = [*project["dependencies"], *project["optional-dependencies"]["pandas"]]
    return [re.sub(">=", "==", line) if versions == "lowest" else line for line in given]


def main(versions: str, folder: str = ".venv-core") -> None:
    """Install and test; the exit code is that of the tests."""
    place = Path(folder).resolve()
    venv.create(place, with_pip=True, clear=True)
    python = place / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*install, *requirements(versions), *TOOLS], check=True)
    subprocess.run([*install, "--no-deps", str(ROOT)], check=True)
    files = [f"tests/{name}.py" for name in FILES]
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", SKIPPED, *files]
    sys.exit(subprocess.run(tests, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
