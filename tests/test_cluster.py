"""On a Dask cluster a fit has the same bits as on threads, and its labels stay where they are."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import nullcontext
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
    small_shards,
    stored,
)
from dissensus.engine import cut_blocks
from dissensus.errors import ClusterError, DataError
from dissensus.large import dask
from dissensus.large.dask import connected
from dissensus.large.file_arrays import FileArrays
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
    monkeypatch.setattr(dask, "SMALL_BYTES", 0)
    with ds.resources(cluster=client, scratch=tmp_path):
        assert differing(brief(name).fit(crowd()), alone) == []


@pytest.mark.parametrize("name", ["cbcc", "pgm-bp"])
def test_little_memory_gives_the_same_bits(name: str, client: Any, tmp_path: Path) -> None:
    known, model = crowd(), MODELS[name]()
    # two workers beside us, and two threads that work
    least = model.memory_needed(known, n_threads=2) + 2 * PROCESS_BYTES
    for memory in (least, least + 10**7):  # blocks are laid out anew for every step; workers keep them
        with ds.resources(cluster=client, scratch=tmp_path, memory=memory):
            assert differing(MODELS[name]().fit(known), alone(name)) == []
    with (
        ds.resources(cluster=client, scratch=tmp_path, memory=least - 1),
        pytest.raises(DataError, match=r"on 4,062 labels needs 75\d.\d+MB of memory at least"),
    ):
        MODELS[name]().fit(known)


def test_without_room_for_layouts_no_worker_keeps_any(client: Any, tmp_path: Path) -> None:
    known, model = crowd(), MODELS["pgm-bp"]()
    least = model.memory_needed(known, n_threads=2) + 2 * PROCESS_BYTES
    for memory, kept in ((least, False), (least + 10**7, True)):
        during = kept_while_fitting(client, known, scratch=tmp_path, memory=memory)
        assert any(during) is kept


@pytest.mark.no_cover
def test_what_was_known_beforehand_is_sent_along(client: Any, tmp_path: Path) -> None:
    known = crowd()
    prior = np.random.default_rng(0).dirichlet(np.ones(known.n_classes), known.n_items)
    for name in ("dawid-skene", "pgm-bp"):
        alone = MODELS[name]().fit(known, prior=prior)
        with ds.resources(cluster=client, scratch=tmp_path):
            assert differing(MODELS[name]().fit(known, prior=prior), alone) == []


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
    assert len(progress.words) == ITERATIONS - 3 + 1
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


def test_labels_and_messages_are_not_sent(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, sizes, real = stored(crowd(), tmp_path), [], client.submit
    monkeypatch.setattr(dask, "SMALL_BYTES", 1000)

    def measured(*args: Any, **more: Any) -> Any:
        sizes.append(len(pickle.dumps([value for value in args if not hasattr(value, "key")])))
        return real(*args, **more)

    monkeypatch.setattr(client, "submit", measured)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch"):
        MODELS["pgm-pairwise"]().fit(known)
    assert len(sizes) >= 4 * ITERATIONS
    # names of files, and where each block stands in them: never the twelve bytes of a label, nor a message
    n_parts = dask.PARTS_PER_THREAD * sum(client.nthreads().values())
    blocks_of_a_part = -(-len(cut_blocks(known)) // n_parts)
    assert max(sizes) < 4_000 + 2_000 * blocks_of_a_part < 12 * known.n_labels


def test_a_worker_with_other_labels_refuses(client: Any, tmp_path: Path) -> None:
    known, store = stored(crowd(2), tmp_path), tmp_path / "votes.store"
    store.rename(tmp_path / "away")
    shutil.copytree(tmp_path / "away", store)  # as on a machine with a copy, which is damaged
    (file,) = store.glob("label*")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    line = f"{file}: holds other labels on this worker's machine than on the driver's; copy the store there"
    with (
        ds.resources(cluster=client, scratch=tmp_path / "scratch"),
        pytest.raises(DataError, match=f"^{re.escape(line)}"),
    ):
        MODELS["fmm"]().fit(known)


def test_a_store_that_a_worker_does_not_have_is_one_line(client: Any, tmp_path: Path) -> None:
    known = stored(crowd(3), tmp_path)
    (tmp_path / "votes.store").rename(tmp_path / "away")
    line = (
        rf"{re.escape(str(tmp_path))}/votes.store/\S+: not reachable from the worker on "
        rf"{re.escape(socket.gethostname())}; put scratch=, and stores, on a disk that every worker reaches"
    )
    with (
        ds.resources(cluster=client, scratch=tmp_path / "scratch"),
        pytest.raises(DataError, match=f"^{line}$"),
    ):
        MODELS["fmm"]().fit(known)


def test_labels_that_a_worker_does_not_find_are_one_line(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FileArrays.pickled

    def elsewhere(self: FileArrays, value: Any, max_bytes: int) -> Any:
        """As if the driver's scratch directory were not there on the workers' machines."""
        content, copies = real(self, value, max_bytes)
        return content.replace(b"/scratch/", b"/nowhere/"), copies

    monkeypatch.setattr(FileArrays, "pickled", elsewhere)
    line = rf"^{re.escape(str(tmp_path))}/nowhere/\S+: not reachable from the worker on "
    with ds.resources(cluster=client, scratch=tmp_path / "scratch"), pytest.raises(DataError, match=line):
        MODELS["fmm"]().fit(crowd())


def test_no_room_for_the_labels_is_one_line(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    line = (
        r"dissensus-messages-\w+: messages cannot be written \(no space left on device\); make room there, "
        r"or name another place with scratch=$"
    )
    monkeypatch.setattr(os, "posix_fallocate", full)
    with ds.resources(cluster=client, scratch=tmp_path), pytest.raises(DataError, match=line):
        MODELS["fmm"]().fit(crowd())
    assert list(tmp_path.iterdir()) == []


def tasks_of_workers(client: Any) -> int:
    """Results of tasks that workers have, or will have."""
    return sum(client.run(lambda dask_worker: len(dask_worker.state.tasks)).values())


def forgotten(client: Any) -> bool:
    """Whether no worker has any, or will not in a moment: they are told, and not waited for."""
    deadline = time.monotonic() + 20
    while tasks_of_workers(client) and time.monotonic() < deadline:
        time.sleep(0.05)
    return tasks_of_workers(client) == 0


def kept_while_fitting(
    client: Any, known: ds.Annotations, stop_at: int | None = None, **used: Any
) -> list[int]:
    """At every iteration, how many results workers keep; none afterwards."""
    during: list[int] = []

    def progress(words: str, share: float) -> None:
        time.sleep(0.3)  # steps of this iteration are forgotten by then, and layouts are not
        during.append(tasks_of_workers(client))
        if len(during) == stop_at:
            raise StoppedError

    with (
        ds.resources(cluster=client, progress=progress, **used),
        nullcontext() if stop_at is None else pytest.raises(StoppedError),
    ):
        MODELS["pgm-bp"]().set_params(max_iter=3).fit(known)
    assert forgotten(client)
    return during


@pytest.mark.parametrize("stop_at", [None, 2], ids=["finished", "stopped"])
def test_no_worker_keeps_labels_of_a_fit_that_is_over(
    stop_at: int | None, client: Any, tmp_path: Path
) -> None:
    for known in (crowd(), stored(crowd(), tmp_path)):
        during = kept_while_fitting(client, known, stop_at, scratch=tmp_path / "scratch")
        assert during
        assert all(during)


# ---- new labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fmm", "dawid-skene", "pgm-bp"])
def test_new_labels_are_worked_on_where_fits_are(name: str, client: Any, tmp_path: Path) -> None:
    fitted, new = MODELS[name](n_jobs=1).fit(crowd()), stored(renamed(crowd(seed=1)), tmp_path)
    alone = fitted.apply(new)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch", progress=False):
        assert differing(fitted.apply(new), alone) == []
    assert differing(fitted.set_params(n_jobs=2).apply(new), alone) == []
    assert list(tmp_path.glob("scratch/*")) == []


def renamed(labels: ds.Annotations) -> ds.Annotations:
    """The same labels of items that are new to a model, by annotators of whom some are known."""
    names = [f"new {item}" for item in labels.items[labels.item]]
    people = labels.annotators[labels.annotator]
    return ds.Annotations.from_arrays(np.array(names), people, labels.classes[labels.label])


# ---- ways to a cluster --------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "nowhere", "x://y:1"])
def test_a_wrong_address_is_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 1.0)
    began = time.monotonic()
    line = rf"^{address}: no scheduler answers there \(.*\); start it with dask scheduler, and give its .*$"
    with pytest.raises(ClusterError, match=line), ds.resources(cluster=address):
        pass
    assert time.monotonic() - began < 20


def test_no_worker_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client, LocalCluster

    monkeypatch.setattr(dask, "WORKER_SECONDS", 0.5)
    quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=0, processes=False, **quiet) as cluster, Client(cluster) as client:
        line = (
            r"^inproc://.*: the cluster has had no worker for 0 seconds; start some with dask worker ADDRESS$"
        )
        with pytest.raises(ClusterError, match=line), ds.resources(cluster=client):
            pass


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


def configured(files: tuple[Path, ...]) -> Any:
    """Dask configured with an authority's certificate, ours, and our key."""
    import dask

    names = ("ca-file", "client.cert", "client.key")
    return dask.config.set(
        {f"distributed.comm.tls.{name}": str(file) for name, file in zip(names, files, strict=False)}
    )


@pytest.mark.parametrize("name", usually(["pgm-bp"], verify=["dawid-skene", "pgm-bp"]))
def test_a_fit_through_tls(name: str, secured: tuple[str, Any], tmp_path: Path) -> None:
    address, files = secured
    assert address.startswith("tls://")
    with configured(files), ds.resources(cluster=address, scratch=tmp_path):
        through_tls = MODELS[name]().fit(crowd())
    assert differing(through_tls, MODELS[name]().fit(crowd())) == []


@pytest.mark.parametrize(
    "way", ["no certificate", "no encryption", "another authority", "another cluster's files"]
)
def test_a_client_without_the_certificate_is_refused(
    way: str, secured: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 2.0)
    address, (ca, *_) = secured
    other = certificates(tmp_path / "other")
    files, line = {
        "no certificate": ((), "asks for a certificate; name its files"),
        "no encryption": ((), "no scheduler answers there"),
        "another authority": ((ca, *other[1:]), "no scheduler answers there"),
        "another cluster's files": (other, "no scheduler answers there"),
    }[way]
    address = address.replace("tls", "tcp") if way == "no encryption" else address
    with configured(files), pytest.raises(ClusterError, match=line) as refused, ds.resources(cluster=address):
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
