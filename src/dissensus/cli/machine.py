"""What a command may use: a cluster, how much memory, where messages and checkpoints go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dissensus.cli.door import StoppedError
from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.execution.resources import Resources

PANEL = "The machine"


def _option(flag: str, metavar: str, help: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=help, rich_help_panel=PANEL)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Dask cluster, if there should be one, and a place on disk that its workers share."""

    cluster: Annotated[
        str | None,
        _option("--cluster", "ADDRESS|local", "A Dask scheduler; local: --jobs processes on this machine."),
    ] = None
    tls_ca: Annotated[
        Path | None, _option("--tls-ca", "FILE", "Certificate of the authority that the cluster trusts.")
    ] = None
    tls_cert: Annotated[Path | None, _option("--tls-cert", "FILE", "Our certificate.")] = None
    tls_key: Annotated[Path | None, _option("--tls-key", "FILE", "Our certificate's key.")] = None
    scratch: Annotated[
        Path | None,
        _option("--scratch", "DIR", "Where messages go that are not in memory; all workers reach it."),
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

    @contextmanager
    def in_use(self, jobs: int) -> Iterator[Resources]:
        """Every fit inside the block uses it, and shows its iterations."""
        from dissensus.execution.resources import resources

        tls = (self.tls_ca, self.tls_cert, self.tls_key) if self.tls_ca else None
        with resources(cluster=self.cluster, n_workers=jobs, tls=tls, **self._others()) as found:
            yield found

    def _others(self) -> dict[str, Any]:
        return {"scratch": self.scratch}


@dataclass(frozen=True, kw_only=True)
class Machine(Cluster):
    """A cluster, memory, and a place for checkpoints."""

    memory: Annotated[
        str | None, _option("--memory", "SIZE", "Memory to keep to, such as 8GB; what needs more is refused.")
    ] = None
    checkpoint: Annotated[
        Path | None, _option("--checkpoint", "DIR", "Keep the fit here; a run that was stopped goes on.")
    ] = None
    checkpoint_every: Annotated[
        int, _option("--checkpoint-every", "N", "Iterations between two checkpoints.")
    ] = 5
    precision: Annotated[
        Literal["double", "single"],
        _option("--precision", "double|single", "Of the messages; single takes half the room."),
    ] = "double"

    def check(self) -> None:
        """Likewise a size that is none."""
        super().check()
        if self.memory is not None:
            from dissensus.params import n_bytes

            n_bytes(self.memory, "fit")

    @contextmanager
    def in_use(self, jobs: int) -> Iterator[Resources]:
        """Likewise; Ctrl-C says where the fit can go on."""
        with super().in_use(jobs) as found:
            try:
                yield found
            except KeyboardInterrupt:
                if not any(folder.is_dir() for folder in found.used):
                    raise
                raise StoppedError(
                    f"interrupted; {self.checkpoint} keeps the fit: run the same again to go on"
                ) from None

    def _others(self) -> dict[str, Any]:
        names = ("memory", "checkpoint", "checkpoint_every", "precision")
        return super()._others() | {name: getattr(self, name) for name in names}
