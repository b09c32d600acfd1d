"""A Dask cluster: how it is reached, and the one way in which calls run on it.

A cluster is an address, with or without TLS, a client that is there, or processes of our own. A call reads
what it is given and returns a result, so it may run twice: when a worker dies its calls run elsewhere, and
when too much is lost at once those that are open are sent again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dissensus.errors import ClusterError, MessagesLostError, bad_parameter, require, workers_died
from dissensus.params import n_cores, physical_memory

WAIT_SECONDS = 60.0  # for a worker, before there is nobody to do the work
CONNECT_SECONDS = 15.0
TELL_SECONDS = 5.0  # for workers to hear that they may forget something
RETURN_SECONDS = 10.0  # for a worker that died to be started again
PATIENCE = 0.5  # seconds between two looks at whether anybody works on a call
TRIES = 6  # how often open calls are sent before the cluster is given up
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
    """One process per worker, gone with us; one that dies is started again, however often.

    Whoever may send a scheduler work runs code as we do. So these processes listen on this machine alone, and
    to nobody who has not the certificate that is made here, in memory, for this one cluster.
    """
    require("cryptography", "cluster")
    settings = {
        # Dask closes for good a worker that is found dead some seconds after it has died before.
        "distributed.deploy.lost-worker-timeout": "1000 days",
        # It also looks a hundred times a second at what each process does, for a page that nobody opens here.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
    }
    with (
        _quiet(),
        require("dask", "cluster").config.set(settings),
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # None would take a fixed port, on every network
            memory_limit=0,  # what may be used is decided before the fit
            host="127.0.0.1",
            protocol="tls://",
            security=distributed.Security.temporary(),
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


def memory_of_workers(client: Any) -> int:
    """Bytes that all workers together may use; those without a limit have what this machine has, together."""
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
    except Exception as error:
        raise _lost(client, error) from error
    limits: list[int] = [worker["memory_limit"] for worker in workers.values()]
    return sum(limits) + (physical_memory() if 0 in limits else 0)


def tell_workers(client: Any, what: Callable[[str], None], about: str) -> None:
    """Every worker calls ``what(about)`` beside its tasks; whoever does not hear of it is left alone."""
    if client.status != "running":
        return
    with suppress(Exception):
        client.sync(client._run, what, about, on_error="ignore", callback_timeout=TELL_SECONDS)


# ---- calls --------------------------------------------------------------------------------------------


def completed(
    client: Any,
    function: Callable[..., Any],
    calls: Sequence[Any],
    shared: Callable[[], tuple[Any, ...]],
    where: Sequence[float | str] | None = None,
) -> Iterator[tuple[int, Any]]:
    """The number of every call with ``function(call, *shared())``, as they finish.

    ``where`` says of every call how far along the row of workers it should rather run, because others like it
    have run there, or the address of the one worker that can run it, because it has what the call needs; the
    calls are then completed in their order.
    """
    left = dict(enumerate(calls))
    for _ in range(TRIES):
        workers, open_calls = sorted(running_workers(client)), _OpenCalls(client, in_order=where is not None)
        _check_holders(client, {place for place in where or () if isinstance(place, str)}, workers)
        try:
            given = shared()
            for number, call in left.items():
                place = {} if where is None else _place(where[number], workers)
                open_calls.send(number, function, call, *given, **place)
            for number, result in open_calls.results():
                del left[number]
                yield number, result
            return
        except Exception as error:
            if not _is_loss(client, error, of_call=open_calls.failed):
                raise
        finally:
            open_calls.release()
    raise workers_died()


def _place(where: float | str, workers: Sequence[str]) -> dict[str, Any]:
    """Where Dask shall run a call: on one worker alone, or rather on one than on others."""
    if isinstance(where, float):
        return {"workers": [workers[int(where * len(workers))]], "allow_other_workers": True}
    return {"workers": [where], "allow_other_workers": False}


def _check_holders(client: Any, holders: set[str], workers: Sequence[str]) -> None:
    """Are the workers there that alone can run some calls?

    If not, what they had is lost. A worker is given a moment to be started again, so that the work that
    follows is shared by as many as before.
    """
    lost = holders.difference(workers)
    if not lost:
        return
    deadline = time.monotonic() + RETURN_SECONDS
    while len(running_workers(client)) < len(holders) and time.monotonic() < deadline:
        time.sleep(0.1)
    raise MessagesLostError(f"the worker {min(lost)} was lost, and messages with it; run the same again")


class _OpenCalls:
    """Calls that have been sent, by their number."""

    def __init__(self, client: Any, *, in_order: bool) -> None:
        self._client = client
        self._in_order = in_order
        self._futures: dict[int, Any] = {}
        self._awaited: Any = None

    def send(self, number: int, *call: Any, **where: Any) -> None:
        self._futures[number] = self._client.submit(*call, pure=False, **where)

    def results(self) -> Iterator[tuple[int, Any]]:
        while self._futures:
            number = next(iter(self._futures)) if self._in_order else self._finished()
            self._awaited = self._futures[number]
            result = self._result(self._awaited)
            self._awaited = None
            del self._futures[number]
            yield number, result

    @property
    def failed(self) -> bool:
        """Was it the call itself that raised the error?"""
        return self._awaited is not None and self._awaited.status == "error"

    def release(self) -> None:
        """Nobody waits any more for those that are open."""
        for future in self._futures.values():
            future.release()

    def _finished(self) -> int:
        """The number of a call that is done."""
        wait = require("distributed", "cluster").wait
        while True:
            found = next((number for number, future in self._futures.items() if future.done()), None)
            if found is not None:
                return found
            running_workers(self._client)  # there is one to do the rest
            with suppress(TimeoutError), self._client.as_current():
                wait(list(self._futures.values()), timeout=PATIENCE, return_when="FIRST_COMPLETED")

    def _result(self, future: Any) -> Any:
        """What a call returned; a call that nobody has in hand is lost.

        Dask would let it wait for ever: where for a moment there is no worker at all, a call that prefers
        one of them is not given to those that come after. Missed once, it may be on its way.
        """
        missed = 0
        while True:
            try:
                return future.result(timeout=PATIENCE)
            except UnboundLocalError as error:  # so distributed's sync() ends for a call that was cancelled
                raise CancelledError from error
            except TimeoutError:
                if future.status == "error":  # by now, whichever of the two has raised
                    return future.result()
                missed = 0 if self._in_hand(future) else missed + 1
                if missed > 1:
                    raise

    def _in_hand(self, future: Any) -> bool:
        running_workers(self._client)  # there is one that could take it
        if future.status == "finished" or not self._in_order:
            return True
        return any(future.key in keys for keys in self._client.processing().values())


def _is_loss(client: Any, error: Exception, *, of_call: bool) -> bool:
    """Did workers die, or data with them? (What a call raised itself, ``of_call``, is not that.)

    A scheduler that is gone is an error of its own.
    """
    distributed = require("distributed", "cluster")
    if isinstance(error, distributed.scheduler.KilledWorker):
        return True
    if of_call or not isinstance(error, OSError | CancelledError):
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
        "again: with a checkpoint directory the fit goes on where it was"
    )


def _address(client: Any) -> str:
    scheduler = getattr(client, "scheduler", None)
    return str(getattr(scheduler, "address", None) or "the cluster")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (text or type(error).__name__)[:200]
