"""On a Dask cluster a fit has the same bits as on threads, and its labels stay where they are."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import socket
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cluster_help import (
    ITERATIONS,
    MODELS,
    Counting,
    StoppedError,
    alone,
    crowd,
    differing,
    least_memory,
    small_shards,
    stored,
)
from dissensus.errors import ClusterError, DataError
from dissensus.execution.dask import blocks as remote
from dissensus.execution.dask import cluster as dask_cluster
from dissensus.execution.dask.cluster import connected
from dissensus.labels.blocks import blocks_of
from dissensus.models.fmm import counts_of
from dissensus.params import PROCESS_BYTES
from sizes import usually
from tls_help import certificates

__all__ = ["small_shards"]
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("small_shards")]


# ---- the same bits ------------------------------------------------------------------------------------


# Models of confusion matrices take Dawid–Skene's steps, and PGM's steps are those of its pairwise form.
FEW = ["fmm", "dawid-skene", "pgm-pairwise"]


def brief(name: str, **more: Any) -> Any:
    """Three iterations, which take every step that seven take."""
    return MODELS[name](**more).set_params(max_iter=usually(3, verify=ITERATIONS))


@pytest.mark.parametrize("name", usually(FEW, verify=[*MODELS]))
def test_two_processes_give_the_same_bits(name: str, client: Any, tmp_path: Path) -> None:
    known = crowd()
    alone = brief(name, n_jobs=2).fit(known)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch"):
        assert differing(brief(name).fit(known), alone) == []
        assert differing(brief(name).fit(stored(known, tmp_path)), alone) == []
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("name", ["dawid-skene", "pgm-pairwise"])
def test_tables_that_are_read_from_files_give_the_same_bits(
    name: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = brief(name).fit(crowd())
    monkeypatch.setattr(remote, "SMALL", 0)
    with ds.resources(cluster=client, scratch=tmp_path):
        assert differing(brief(name).fit(crowd()), alone) == []


@pytest.mark.parametrize("name", ["cbcc", "pgm-bp"])
def test_little_memory_gives_the_same_bits(name: str, client: Any, tmp_path: Path) -> None:
    known, model = crowd(), MODELS[name]()
    # two workers beside us, and two threads that work
    least = least_memory(model, known) + 2 * PROCESS_BYTES + model._needs(known, 8).working
    with ds.resources(cluster=client, scratch=tmp_path, memory=least + 30_000):
        assert differing(MODELS[name]().fit(known), alone(name)) == []
    with (
        ds.resources(cluster=client, scratch=tmp_path, memory=least - 1),
        pytest.raises(DataError, match=r"on 4,062 labels needs 75\d.\dMB of memory at least"),
    ):
        MODELS[name]().fit(known)


@pytest.mark.no_cover
def test_what_was_known_beforehand_is_sent_along(client: Any, tmp_path: Path) -> None:
    known = crowd()
    prior = np.random.default_rng(0).dirichlet(np.ones(known.n_classes), known.n_items)
    for name in ("dawid-skene", "pgm-bp"):
        given = {"pseudo_labels" if name == "pgm-bp" else "item_prior": prior}
        alone = MODELS[name]().fit(known, **given)
        with ds.resources(cluster=client, scratch=tmp_path):
            assert differing(MODELS[name]().fit(known, **given), alone) == []


def test_a_fit_begun_on_a_cluster_goes_on_on_threads_and_back(client: Any, tmp_path: Path) -> None:
    for cluster, stop_at in ((client, 2), (None, 2), (client, None)):
        progress = Counting(stop_at)
        with ds.resources(cluster=cluster, checkpoint=tmp_path, checkpoint_every=1, progress=progress):
            if stop_at:
                with pytest.raises(StoppedError):
                    MODELS["pgm-pairwise"]().fit(crowd())
            else:
                resumed = MODELS["pgm-pairwise"]().fit(crowd())
    assert differing(resumed, alone("pgm-pairwise")) == []
    assert len(progress.words) == ITERATIONS - 4
    assert len(list(tmp_path.iterdir())) == 1


def test_progress_is_told(client: Any, tmp_path: Path) -> None:
    progress = Counting()
    with ds.resources(cluster=client, scratch=tmp_path, progress=progress):
        MODELS["fmm"]().fit(crowd())
    assert progress.words[0] == f"iteration 1 of at most {ITERATIONS}"
    rate = r"iteration 3 of at most 7, [\d,]+ labels per second, at most \d+ s left"
    assert re.fullmatch(rate, progress.words[2])
    np.testing.assert_allclose(progress.shares, np.arange(1, ITERATIONS + 1) / ITERATIONS, rtol=1e-15)


# ---- labels stay where they are -----------------------------------------------------------------------


def test_labels_of_a_store_are_not_sent(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, sizes, real = stored(crowd(), tmp_path), [], client.submit

    def measured(*args: Any, **more: Any) -> Any:
        sizes.append(len(pickle.dumps(args)))
        return real(*args, **more)

    monkeypatch.setattr(client, "submit", measured)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch"):
        MODELS["fmm"]().fit(known)
    blocks = len(blocks_of(known))
    assert len(sizes) >= ITERATIONS
    # some names, Θ and ψ, and where each block stands: never the twelve bytes of a label
    assert max(sizes) < 2_000 + 40 * blocks < 12 * known.n_labels


def test_a_worker_with_other_labels_refuses(client: Any, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    known, _ = stored(crowd(2), tmp_path), stored(crowd(1), tmp_path / "other")
    (tmp_path / "votes.store").rename(tmp_path / "away")
    (tmp_path / "other" / "votes.store").rename(tmp_path / "votes.store")
    line = (
        f"{tmp_path}/votes.store: holds other labels on this worker's machine than on the driver's; "
        "copy the store there again"
    )
    with (
        ds.resources(cluster=client, scratch=tmp_path / "scratch"),
        pytest.raises(DataError, match=f"^{re.escape(line)}$"),
    ):
        MODELS["fmm"]().fit(known)


def test_a_store_that_a_worker_does_not_have_is_one_line(client: Any, tmp_path: Path) -> None:
    known = stored(crowd(3), tmp_path)
    (tmp_path / "votes.store").rename(tmp_path / "away")
    line = (
        f"{tmp_path}/votes.store: not reachable from the worker on {socket.gethostname()}; put the store at "
        "the same path there, shared or copied"
    )
    with (
        ds.resources(cluster=client, scratch=tmp_path / "scratch"),
        pytest.raises(DataError, match=f"^{re.escape(line)}$"),
    ):
        MODELS["fmm"]().fit(known)


def test_labels_that_a_worker_does_not_find_are_one_line(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = remote.labels_for_workers

    def elsewhere(known: ds.Annotations, scratch: Path) -> Any:
        """As if the driver's scratch directory were not there on the workers' machines."""
        source = real(known, scratch)
        return replace(source, folder=source.folder.replace("scratch", "nowhere"))

    monkeypatch.setattr(remote, "labels_for_workers", elsewhere)
    line = (
        rf"^{re.escape(str(tmp_path))}/nowhere/\S+/item.npy: not reachable from the worker on "
        rf"{re.escape(socket.gethostname())}; give scratch= that every worker reaches$"
    )
    with (
        ds.resources(cluster=client, scratch=tmp_path / "scratch"),
        pytest.raises(DataError, match=line),
    ):
        MODELS["fmm"]().fit(crowd())


@pytest.mark.parametrize("broken", ["mkdir", "write"])
def test_no_room_for_the_labels_is_one_line(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if broken == "mkdir":
        monkeypatch.setattr(Path, "mkdir", full)
    else:
        monkeypatch.setattr(np.lib.format, "write_array", full)
    line = (
        r"/labels-[0-9a-f]{12}: labels cannot be written for the workers \(no space left on device\); make "
        r"room there, or name another place with scratch=$"
    )
    with pytest.raises(DataError, match=line):
        remote.labels_for_workers(crowd(), tmp_path)


def test_no_room_for_a_table_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = r"file/tables: the messages of a round cannot be written \(not a directory\); make room there"
    with pytest.raises(DataError, match=line):
        remote._filed_table(tmp_path / "file" / "tables" / "theta.npy", np.zeros(3))


def _kept_by_a_worker() -> int:
    return len(remote._kept)


@pytest.mark.parametrize("stop_at", [None, 2], ids=["finished", "stopped"])
def test_no_worker_keeps_labels_of_a_fit_that_is_over(
    stop_at: int | None, client: Any, tmp_path: Path
) -> None:
    during: list[int] = []

    def progress(words: str, share: float) -> None:
        during.extend(client.run(_kept_by_a_worker).values())
        if len(during) == stop_at:
            raise StoppedError

    for known in (crowd(), stored(crowd(), tmp_path)):
        during.clear()
        with (
            ds.resources(cluster=client, scratch=tmp_path / "scratch", progress=progress),
            nullcontext() if stop_at is None else pytest.raises(StoppedError),
        ):
            MODELS["pgm-bp"]().fit(known)
        assert max(during) == 1
        assert set(client.run(_kept_by_a_worker).values()) == {0}


def test_a_worker_keeps_no_more_layouts_than_it_may(tmp_path: Path) -> None:
    known = crowd()
    blocks = blocks_of(known)
    for most in (None, 1000, 0):
        source = remote.labels_for_workers(known, tmp_path)
        task = remote.BlockRange(source, counts_of, most, blocks, [()] * len(blocks))
        sums = remote.run_blocks(task, np.sum, {})
        assert sum(sums) == known.n_labels
        kept = remote._kept[source.seal, "counts_of"].n_labels
        assert kept == known.n_labels if most is None else kept <= most
        if most is not None:
            assert sum(laid_out.n_labels for laid_out in remote._kept.values()) <= max(most, kept)
    remote._kept.clear()


# ---- ways to a cluster --------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "nowhere", "x://y:1"])
def test_a_wrong_address_is_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 1.0)
    began = time.monotonic()
    line = rf"^{address}: no scheduler answers there \(.*\); start it with dask scheduler, and give its .*$"
    with pytest.raises(ClusterError, match=line), ds.resources(cluster=address):
        pass
    assert time.monotonic() - began < 20


def test_no_worker_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client, LocalCluster

    monkeypatch.setattr(dask_cluster, "WAIT_SECONDS", 0.5)
    quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=0, processes=False, **quiet) as cluster, Client(cluster) as client:
        line = (
            r"^inproc://.*: the cluster has had no worker for 0 seconds; start some with dask worker ADDRESS$"
        )
        with ds.resources(cluster=client), pytest.raises(ClusterError, match=line):
            MODELS["fmm"]().fit(crowd())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, tuple[Path, Path, Path]]]:
    """A cluster that speaks TLS alone: its address, and the files that it trusts."""
    from distributed import LocalCluster, Security

    ca, cert, key = certificates(tmp_path_factory.mktemp("tls") / "own")
    roles = {
        f"tls_{who}_{what}": str(path)
        for who in ("scheduler", "worker", "client")
        for what, path in (("cert", cert), ("key", key))
    }
    security = Security(tls_ca_file=str(ca), require_encryption=True, **roles)
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tls://",
        host="127.0.0.1",
        security=security,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster.scheduler_address, (ca, cert, key)


@pytest.mark.parametrize("name", usually(["pgm-bp"], verify=["dawid-skene", "pgm-bp"]))
def test_a_fit_through_tls(name: str, secured: tuple[str, Any], tmp_path: Path) -> None:
    address, files = secured
    assert address.startswith("tls://")
    with ds.resources(cluster=address, tls=files, scratch=tmp_path):
        through_tls = MODELS[name]().fit(crowd())
    assert differing(through_tls, MODELS[name]().fit(crowd())) == []


@pytest.mark.parametrize(
    "way", ["no certificate", "no encryption", "another authority", "another cluster's files", "no such file"]
)
def test_a_client_without_the_certificate_is_refused(
    way: str, secured: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 2.0)
    address, (ca, cert, key) = secured
    other = certificates(tmp_path / "other")
    settings, line = {
        "no certificate": ({"cluster": address}, "asks for a certificate; give the three files"),
        "no encryption": ({"cluster": address.replace("tls", "tcp")}, "no scheduler answers there"),
        "another authority": ({"cluster": address, "tls": (ca, *other[1:])}, "no scheduler answers there"),
        "another cluster's files": ({"cluster": address, "tls": other}, "no scheduler answers there"),
        "no such file": ({"cluster": address, "tls": (ca, cert, key / "x")}, "there is no such file"),
    }[way]
    with pytest.raises(ClusterError, match=line) as refused, ds.resources(**settings):
        pass
    assert "\n" not in str(refused.value)


# ---- four processes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four() -> Iterator[Any]:
    with connected("local", n_workers=4) as client:
        yield client


@pytest.mark.verify
@pytest.mark.parametrize("name", MODELS)
def test_four_processes_give_the_same_bits(name: str, four: Any, tmp_path: Path) -> None:
    known = stored(crowd(), tmp_path)
    alone = MODELS[name]().fit(known)
    with ds.resources(cluster=four, scratch=tmp_path / "scratch"):
        assert differing(MODELS[name]().fit(known), alone) == []


def test_a_local_cluster_listens_to_its_own_processes_alone(client: Any) -> None:
    """Whoever reaches a scheduler runs code in its workers: here nobody does without our certificate."""
    import socket
    import ssl

    import distributed

    address = client.scheduler_info()["address"]
    workers = list(client.scheduler_info()["workers"])
    assert all(place.startswith("tls://127.0.0.1:") for place in (address, *workers))
    plain = address.replace("tls://", "tcp://")
    with pytest.raises(OSError, match=r"."):
        distributed.Client(plain, timeout=2, set_as_default=False)
    host, port = distributed.comm.get_address_host_port(address)
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE

    def ask() -> None:
        with socket.create_connection((host, port)) as line, stranger.wrap_socket(line) as asking:
            # The refusal comes with the first answer, once the handshake has asked for our certificate.
            asking.sendall(b"hello")
            if not asking.recv(1):
                raise ConnectionError("closed")

    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask()
