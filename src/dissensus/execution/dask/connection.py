"""Reaching a cluster: by address, with or without TLS, as a client that is there, or one of our own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dissensus.errors import ClusterError, bad_parameter, require
from dissensus.params import n_cores

WAIT_SECONDS = 60.0  # for a worker, before there is nobody to do the work
CONNECT_SECONDS = 15.0
TELL_SECONDS = 5.0  # for workers to hear that they may forget something
QUIET = logging.CRITICAL  # of the cluster's own words, what reaches the terminal


@dataclass(frozen=True)
class Tls:
    """Three files: who is trusted, who we are, and our key."""

    ca: Path
    cert: Path
    key: Path

    def security(self) -> Any:
        """As Dask wants it; an unencrypted connection is refused."""
        for file in (self.ca, self.cert, self.key):
            if not Path(file).is_file():
                raise ClusterError(f"{file}: there is no such file; give the three files of TLS")
        return require("distributed", "cluster").Security(
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.cert),
            tls_client_key=str(self.key),
            require_encryption=True,
        )


@contextmanager
def connected(cluster: Any, *, n_workers: int = -1, tls: Tls | None = None) -> Iterator[Any]:
    """A client of the cluster: an address, ``"local"`` (processes on this machine), or a client as it is."""
    distributed = require("distributed", "cluster")
    if isinstance(cluster, distributed.Client):
        yield cluster
        return
    if not isinstance(cluster, str):
        raise bad_parameter("resources", "cluster", "an address, 'local' or a distributed.Client", cluster)
    if cluster == "local":
        with _local(distributed, n_cores() if n_workers == -1 else n_workers) as client:
            yield client
        return
    with _remote(distributed, cluster, tls) as client:
        yield client


@contextmanager
def _local(distributed: Any, n_workers: int) -> Iterator[Any]:
    """One process a worker, gone with us; one that dies is started again, however often."""
    # Dask closes for good a worker that is found dead some seconds after it has died before.
    settings = {"distributed.deploy.lost-worker-timeout": "1000 days"}
    with (
        _quiet(),
        require("dask", "cluster").config.set(settings),
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # None would take a fixed port, on every network
            memory_limit=0,  # what may be used is decided before the fit
            silence_logs=QUIET,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _remote(distributed: Any, address: str, tls: Tls | None) -> Iterator[Any]:
    security = None if tls is None else tls.security()
    if tls is None and address.startswith("tls://"):
        raise ClusterError(f"{address}: asks for a certificate; give the three files of TLS with tls=")
    with _quiet():
        try:
            # A client that was never more than begun would speak up when it is thrown away.
            distributed.comm.get_address_host_port(address)
            client = distributed.Client(
                address, security=security, timeout=CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise ClusterError(
                f"{address}: no scheduler answers there ({_reason(error)}); start it with dask scheduler, "
                "and give its address as it prints it, with the TLS files if it asks for them"
            ) from None
        try:
            yield client
        finally:
            client.close(timeout=5)


@contextmanager
def _quiet() -> Iterator[None]:
    """A worker that dies is no news to the user: its work is done again, and what cannot be is an error."""
    ours = [
        logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("distributed")
    ]
    before = [(logger, logger.level) for logger in ours]
    for logger in ours:
        logger.setLevel(QUIET)
    try:
        yield
    finally:
        for logger, level in before:
            logger.setLevel(level)


def running_workers(client: Any) -> dict[str, int]:
    """Threads of every worker by its address; waits until there is one."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            threads = dict(client.nthreads())
        except Exception as error:
            raise _lost(client, error) from error
        if threads:
            return threads
        time.sleep(0.2)
    raise ClusterError(
        f"{_address(client)}: the cluster has had no worker for {WAIT_SECONDS:.0f} seconds; "
        "start some with dask worker ADDRESS"
    )


def tell_workers(client: Any, what: Callable[[str], None], about: str) -> None:
    """Every worker calls ``what(about)`` beside its tasks; whoever does not hear of it is left alone."""
    if client.status != "running":
        return
    with suppress(Exception):
        client.sync(client._run, what, about, on_error="ignore", callback_timeout=TELL_SECONDS)


def is_loss(client: Any, error: Exception, *, of_task: bool) -> bool:
    """Did workers die, or data with them? (What a task raised itself, ``of_task``, is not that.)

    A scheduler that is gone is an error of its own.
    """
    distributed = require("distributed", "cluster")
    if isinstance(error, distributed.scheduler.KilledWorker):
        return True
    if of_task or not isinstance(error, OSError | CancelledError):
        return False
    if not _answers(client):
        raise _lost(client, error) from error
    return True


def _answers(client: Any) -> bool:
    """Is the scheduler there?"""
    if client.status != "running":
        return False
    try:
        client.sync(client.scheduler.identity, callback_timeout=CONNECT_SECONDS)
    except Exception:
        return False
    return True


def _lost(client: Any, error: Exception) -> ClusterError:
    return ClusterError(
        f"{_address(client)}: the scheduler was lost ({_reason(error)}); start it again and run the same "
        "command: with a checkpoint directory the fit goes on where it was"
    )


def _address(client: Any) -> str:
    scheduler = getattr(client, "scheduler", None)
    return str(getattr(scheduler, "address", None) or "the cluster")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (text or type(error).__name__)[:200]
