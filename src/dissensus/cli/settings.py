"""Options that fitting commands share: which model, with which settings, and what the machine may use.

The common settings have an option of their own, every one goes as ``--set name=value``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dissensus.cli.app import StoppedError
from dissensus.cli.options import under
from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.large.resources import Resources

# ---- the model ----------------------------------------------------------------------------------------

# option -> the models' setting it stands for
CLUSTERS = {"item_clusters": "n_item_clusters", "annotator_clusters": "n_annotator_clusters"}
COMMON = {**CLUSTERS, "restarts": "n_restarts", "inference": "inference"}

_model = under("The model")


def model_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from dissensus.models import MODELS

    return [name for name in ("auto", *MODELS) if name.startswith(incomplete)]


Inference = Annotated[
    str | None, _model("NAME", "How the model is learned (only pgm has a choice).", "--inference")
]
Restarts = Annotated[
    int | None, _model("N", "Number of fits from different starts; the best one is kept.", "--restarts")
]
Seed = Annotated[
    int, _model("N", "Seed of the random numbers: the same seed gives the same result.", "--seed")
]


def _number_of_jobs(given: int) -> int:
    if given != ALL_CORES and given < 1:
        raise ParameterError(f"--jobs: give a number from 1 on, or -1 for all cores; not {given}")
    return given


Jobs = Annotated[
    int,
    _model(
        "N",
        "Number of threads or processes (all cores if left out or -1).",
        "--jobs",
        "-j",
        callback=_number_of_jobs,
    ),
]
ALL_CORES = -1
TestSize = Annotated[
    float,
    _model(
        "SHARE",
        "Share of the labels hidden to judge the model by; with a named model it may be 0.",
        "--test-size",
    ),
]
Estimate = Annotated[
    str,
    _model(
        "WHOSE",
        "What to estimate: the answers of a population, those of each of the annotators, or the truth.",
        "--estimate",
    ),
]
Represent = Annotated[
    list[str],
    _model(
        "COLUMN=VALUE",
        "Whose population to estimate: annotators with this value in --annotators; repeatable.",
        "--represent",
    ),
]
Fast = Annotated[
    bool,
    _model(
        None, "Leave sampled models out: seconds instead of minutes, with approximate intervals.", "--fast"
    ),
]
Thorough = Annotated[
    bool,
    _model(
        None, "Also try the model latent: it often predicts best, and takes minutes longer.", "--thorough"
    ),
]
SetOption = Annotated[
    list[str],
    _model(
        "NAME=VALUE",
        "Any setting of the model (dissensus models NAME lists them); repeatable.",
        "--set",
        "-s",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A model by name, with settings."""

    model: Annotated[
        str,
        _model(
            "NAME",
            "A model (dissensus models lists them); auto takes the one that predicts best.",
            "--model",
            "-m",
            autocompletion=model_names,
        ),
    ] = "auto"
    item_clusters: Annotated[int | None, _model("K", "Number of item clusters.", "--item-clusters", "-k")] = (
        None
    )
    annotator_clusters: Annotated[
        int | None, _model("L", "Number of annotator clusters.", "--annotator-clusters", "-l")
    ] = None
    inference: Inference = None
    restarts: Restarts = None
    seed: Seed = 0
    jobs: Jobs = ALL_CORES
    set: SetOption = field(default_factory=list)

    def chosen(self) -> dict[str, Any]:
        """The settings that were given, by the models' names for them."""
        common = {setting: getattr(self, option) for option, setting in COMMON.items()}
        given = {setting: value for setting, value in common.items() if value is not None}
        return given | dict(map(parse_setting, self.set))

    def check(self) -> None:
        """Refuse an unknown model or a setting outside its rule before any file is read."""
        from dissensus.models import build_model

        if self.model != "auto":
            build_model(self.model, self.chosen(), seed=self.seed, n_jobs=self.jobs)


def parse_setting(text: str) -> tuple[str, Any]:
    """``name=value``, the value read as JSON would (3, 0.5, true, null), or else as text."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip()):
        raise ParameterError(f"{text}: write it as name=value, as in n_item_clusters=12")
    return name.strip(), parse_value(value)


def parse_represent(texts: Sequence[str]) -> dict[str, list[str]] | None:
    """``column=value``, any number of them: values of one column are alternatives; None for none."""
    wanted: dict[str, list[str]] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not (equals and column.strip()):
            raise ParameterError(f"{text}: write it as column=value, as in country=DE")
        wanted.setdefault(column.strip(), []).append(value.strip())
    return wanted or None


def parse_value(text: str) -> Any:
    """A value as JSON would read it, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return {"none": None, "true": True, "false": False}.get(text.strip().lower(), text.strip())


def parse_values(text: str) -> list[Any]:
    """Values to try: single ones with commas between, and ``3:20`` for every whole number from 3 to 20."""
    values: list[Any] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"\s*(\d+):(\d+)\s*", part)
        values += range(int(bounds[1]), int(bounds[2]) + 1) if bounds else [parse_value(part)]
    if not values or "" in values:
        raise ParameterError(f"{text}: write values to try as 3:20 or 1,2,4")
    return values


# ---- the machine --------------------------------------------------------------------------------------

_machine = under("The machine")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Dask cluster, if there should be one, and a place on disk that its workers share."""

    cluster: Annotated[
        str | None,
        _machine(
            "ADDRESS|local", "Address of a Dask scheduler; local starts --jobs processes on this machine."
        ),
    ] = None
    tls_ca: Annotated[
        Path | None, _machine("FILE", "Certificate of the authority that the cluster trusts.")
    ] = None
    tls_cert: Annotated[Path | None, _machine("FILE", "Certificate of this program.")] = None
    tls_key: Annotated[Path | None, _machine("FILE", "Key of that certificate.")] = None
    scratch: Annotated[
        Path | None,
        _machine("DIR", "Directory for messages that do not fit in memory; all workers must reach it."),
    ] = None

    def check(self) -> None:
        """Refuse what cannot be an address, and files of TLS that do not belong together, before any work."""
        if self.cluster not in (None, "local") and not re.fullmatch(r".+:\d+", self.cluster or ""):
            raise ParameterError(
                f"--cluster {self.cluster}: is no address; give it as in tcp://10.0.0.1:8786, or local"
            )
        files = self.tls_ca, self.tls_cert, self.tls_key
        if any(files) and not all(files):
            raise ParameterError("--tls-ca, --tls-cert and --tls-key belong together; give all three or none")
        if any(files) and self.cluster in (None, "local"):
            raise ParameterError(
                "--tls-ca is for a cluster; give its address, as in --cluster tls://HOST:8786"
            )

    def in_use(self, jobs: int, **more: Any) -> AbstractContextManager[Resources]:
        """Every fit inside the block uses it (and ``more`` resources), and shows its iterations."""
        from dissensus.large.resources import resources

        tls = (self.tls_ca, self.tls_cert, self.tls_key) if self.tls_ca else None
        return resources(n_workers=jobs, cluster=self.cluster, tls=tls, scratch=self.scratch, **more)


@dataclass(frozen=True, kw_only=True)
class Machine(Cluster):
    """A cluster, memory, and a place for checkpoints."""

    memory: Annotated[
        str | None, _machine("SIZE", "Memory that may be used, such as 8GB; what needs more is refused.")
    ] = None
    checkpoint: Annotated[
        Path | None,
        _machine(
            "DIR", "Directory that keeps the state of the fit; a run that was stopped goes on from there."
        ),
    ] = None
    checkpoint_every: Annotated[int, _machine("N", "Number of iterations between two checkpoints.")] = 5
    precision: Annotated[
        Literal["double", "single"],
        _machine("double|single", "Precision of the messages; single takes half the memory."),
    ] = "double"

    def check(self) -> None:
        """Likewise a size that is none."""
        super().check()
        if self.memory is not None:
            from dissensus.params import n_bytes

            n_bytes(self.memory, "fit")

    def reading(self) -> AbstractContextManager[None]:
        """What is read inside the block keeps to the memory allowed."""
        from dissensus.params import n_bytes
        from dissensus.tables.source import within_memory

        return within_memory(None if self.memory is None else n_bytes(self.memory, "fit"))

    @contextmanager
    def in_use(self, jobs: int, **more: Any) -> Iterator[Resources]:
        """Likewise; Ctrl-C says where the fit can go on."""
        names = ("memory", "checkpoint", "checkpoint_every", "precision")
        more |= {name: getattr(self, name) for name in names}
        with super().in_use(jobs, **more) as found:
            try:
                yield found
            except KeyboardInterrupt:
                if not any(folder.is_dir() for folder in found.used):
                    raise
                raise StoppedError(
                    f"interrupted; {self.checkpoint} keeps the fit: run the same again to go on"
                ) from None


@contextmanager
def resumable(directory: Path, kept: str) -> Iterator[None]:
    """Ctrl-C inside the block says what of a long job is kept, if its directory is there."""
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; {kept if directory.exists() else 'nothing was written'}") from None
