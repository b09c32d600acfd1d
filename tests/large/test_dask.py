"""Fits on a Dask cluster: identical bits, and labels that are not sent."""

import itertools
import logging
import pickle
import re
import shutil
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.engine import cut_blocks
from dissensus.errors import ClusterError, DataError
from dissensus.large import dask
from dissensus.params import PROCESS_BYTES
from tests.helpers.cluster import ITERATIONS, MODELS, Counting, StoppedError, alone, crowd, differing, stored
from tests.helpers.sizes import usually
from tests.helpers.tls import certificates

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("small_shards")]
QUIET: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}


def test_a_local_cluster_shows_nothing_over_plain_http() -> None:
    """Every port of its processes is TLS, or answers 404."""
    psutil = pytest.importorskip("psutil")
    with dask._local(1):
        this = psutil.Process()
        connections = [part.net_connections() for part in (this, *this.children(recursive=True))]
        ports = {one.laddr.port for many in connections for one in many if one.status == "LISTEN"}
        assert len(ports) >= 3
        for port, path in itertools.product(ports, ("", "health", "metrics", "info/main/workers.html")):
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer,
            ):
                pytest.fail(f"{path}: {answer.read()[:200]!r}")


# ---- identical bits -----------------------------------------------------------------------------------


# other models take the steps of these
FEW = ["fmm", "dawid-skene", "pgm-pairwise"]


def short(name: str, **options: Any) -> Any:
    """Return a model with three iterations, which contain all kinds of steps."""
    return MODELS[name](**options).set_params(max_iter=usually(3, verify=ITERATIONS))


@pytest.mark.parametrize("name", usually(FEW, verify=[*MODELS]))
def test_cluster_gives_identical_bits(name: str, client: Any, tmp_path: Path) -> None:
    labels_ = crowd()
    alone = short(name, n_jobs=2).fit(labels_)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch"):
        assert differing(short(name).fit(labels_), alone) == []
        assert differing(short(name).fit(stored(labels_, tmp_path)), alone) == []
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("name", ["cbcc", "pgm-bp"])
def test_small_memory_gives_identical_bits(name: str, client: Any, tmp_path: Path) -> None:
    labels_, model = crowd(), MODELS[name]()
    # two workers besides this process, and two threads
    least = model.memory_needed(labels_, n_threads=2) + 2 * PROCESS_BYTES
    for memory in (least, least + 10**7):  # layouts rebuilt for every step, or cached
        with ds.resources(cluster=client, scratch=tmp_path, memory=memory):
            assert differing(MODELS[name]().fit(labels_), alone(name)) == []
    line, resources = r"on 4,062 labels needs at least 75\d.\d+MB of memory", {"cluster": client}
    with ds.resources(**resources, memory=least - 1), pytest.raises(DataError, match=line):
        MODELS[name]().fit(labels_)


def test_fit_resumes_on_threads_and_back(client: Any, tmp_path: Path) -> None:
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


# ---- data transfer ------------------------------------------------------------------------------------


def test_labels_and_messages_are_not_sent(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels_, sizes, real = stored(crowd(), tmp_path), [], client.submit
    monkeypatch.setattr(dask, "MAX_INLINE_BYTES", 1000)

    def measured(*args: Any, **options: Any) -> Any:
        sizes.append(len(pickle.dumps([value for value in args if not hasattr(value, "key")])))
        return real(*args, **options)

    monkeypatch.setattr(client, "submit", measured)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch"):
        MODELS["pgm-pairwise"]().fit(labels_)
    assert len(sizes) >= 4 * ITERATIONS
    # names of files and positions of blocks, but neither labels nor messages
    n_parts = dask.TASKS_PER_THREAD * sum(client.nthreads().values())
    blocks_of_a_part = -(-len(cut_blocks(labels_)) // n_parts)
    assert max(sizes) < 4_000 + 2_000 * blocks_of_a_part < 12 * labels_.n_labels


def test_worker_with_other_labels(client: Any, tmp_path: Path) -> None:
    labels_, store = stored(crowd(2), tmp_path), tmp_path / "votes.store"
    store.rename(tmp_path / "away")
    shutil.copytree(tmp_path / "away", store)  # a damaged copy, as on another machine
    (file,) = store.glob("label*")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    line = f"{file}: the labels on this worker's machine differ from the driver's; copy the store there"
    resources = ds.resources(cluster=client, scratch=tmp_path / "scratch")
    with resources, pytest.raises(DataError, match=f"^{re.escape(line)}"):
        MODELS["fmm"]().fit(labels_)


def test_store_missing_on_a_worker(client: Any, tmp_path: Path) -> None:
    labels_ = stored(crowd(3), tmp_path)
    (tmp_path / "votes.store").rename(tmp_path / "away")
    line = (
        rf"votes.store/\S+: not reachable from the worker on {re.escape(socket.gethostname())}; "
        r"put scratch=, and stores, on a disk shared by all workers$"
    )
    resources = ds.resources(cluster=client, scratch=tmp_path / "scratch")
    with resources, pytest.raises(DataError, match=line):
        MODELS["fmm"]().fit(labels_)


def tasks_of_workers(client: Any) -> int:
    """Count the task results on workers."""
    return sum(client.run(lambda dask_worker: len(dask_worker.state.tasks)).values())


@pytest.mark.parametrize("stop_at", [None, 2], ids=["finished", "stopped"])
def test_layouts_are_released_after_the_fit(stop_at: int | None, client: Any, tmp_path: Path) -> None:
    during: list[int] = []

    def progress(words: str, share: float) -> None:
        time.sleep(0.3)  # results of steps are released by then, layouts are not
        during.append(tasks_of_workers(client))
        if len(during) == stop_at:
            raise StoppedError

    resources = ds.resources(cluster=client, progress=progress, scratch=tmp_path / "scratch")
    with resources, nullcontext() if stop_at is None else pytest.raises(StoppedError):
        MODELS["pgm-bp"]().set_params(max_iter=3).fit(stored(crowd(), tmp_path))
    deadline = time.monotonic() + 20
    while tasks_of_workers(client) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tasks_of_workers(client) == 0
    assert during
    assert all(during)


# ---- new labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fmm", "dawid-skene", "pgm-bp"])
def test_apply_on_a_cluster(name: str, client: Any, tmp_path: Path) -> None:
    fitted, new = MODELS[name](n_jobs=1).fit(crowd()), stored(renamed(crowd(seed=1)), tmp_path)
    alone = fitted.apply(new)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch", progress=False):
        assert differing(fitted.apply(new), alone) == []
    assert differing(fitted.set_params(n_jobs=2).apply(new), alone) == []
    assert list(tmp_path.glob("scratch/*")) == []


def renamed(labels: ds.Annotations) -> ds.Annotations:
    """Rename the items of labels."""
    names = [f"new {item}" for item in labels.items[labels.item]]
    annotators = labels.annotators[labels.annotator]
    return ds.Annotations.from_arrays(np.array(names), annotators, labels.classes[labels.label])


# ---- connections --------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere"])
def test_wrong_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "CONNECT_TIMEOUT", 1.0)
    line = rf"^{address}: no scheduler answers \(.*\); start one with dask scheduler and pass .*$"
    with pytest.raises(ClusterError, match=line), ds.resources(cluster=address):
        pass


def test_cluster_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client, LocalCluster

    monkeypatch.setattr(dask, "WORKER_TIMEOUT", 0.5)
    with LocalCluster(n_workers=0, processes=False, **QUIET) as cluster, Client(cluster) as client:
        line = r"^inproc://.*: the cluster has had no workers for 0 seconds; start some with dask worker"
        with pytest.raises(ClusterError, match=line), ds.resources(cluster=client):
            pass


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, tuple[Path, Path, Path]]]:
    """Start a cluster with TLS; yield its address and the files of certificates and key."""
    from distributed import LocalCluster, Security

    ca, cert, key = certificates(tmp_path_factory.mktemp("tls") / "own")
    roles = {f"tls_{role}_cert": str(cert) for role in ("scheduler", "worker", "client")}
    roles |= {name.replace("cert", "key"): str(key) for name in roles}
    security = Security(tls_ca_file=str(ca), require_encryption=True, **roles)
    place_and_size = {"host": "127.0.0.1", "n_workers": 1, "threads_per_worker": 2, "processes": False}
    with LocalCluster(**place_and_size, protocol="tls://", security=security, **QUIET) as cluster:
        yield cluster.scheduler_address, (ca, cert, key)


def configured(files: tuple[Path, ...]) -> Any:
    """Configure Dask with the certificate of an authority, a certificate and a key."""
    import dask

    names = [f"distributed.comm.tls.{name}" for name in ("ca-file", "client.cert", "client.key")]
    return dask.config.set(dict(zip(names, map(str, files), strict=False)))


@pytest.mark.parametrize("name", usually(["pgm-bp"], verify=["dawid-skene", "pgm-bp"]))
def test_tls(name: str, secured: tuple[str, Any], tmp_path: Path) -> None:
    address, files = secured
    assert address.startswith("tls://")
    with configured(files), ds.resources(cluster=address, scratch=tmp_path):
        through_tls = MODELS[name]().fit(crowd())
    assert differing(through_tls, MODELS[name]().fit(crowd())) == []


@pytest.mark.parametrize("case", ["no certificate", "no encryption", "another authority"])
def test_clients_without_certificate_are_rejected(
    case: str, secured: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "CONNECT_TIMEOUT", 2.0)
    address, (ca, *_) = secured
    files = (ca, *certificates(tmp_path / "other")[1:]) if case == "another authority" else ()
    address = address.replace("tls", "tcp") if case == "no encryption" else address
    line = "TLS needs a certificate; name its files" if case == "no certificate" else "no scheduler answers"
    with configured(files), pytest.raises(ClusterError, match=line), ds.resources(cluster=address):
        pass


def test_local_cluster_accepts_only_its_own_clients(client: Any) -> None:
    """Check that a client without the certificate cannot connect."""
    import socket
    import ssl

    import distributed

    address = client.scheduler_info()["address"]
    workers = list(client.scheduler_info()["workers"])
    assert all(address_.startswith("tls://127.0.0.1:") for address_ in (address, *workers))
    plain = address.replace("tls://", "tcp://")
    with pytest.raises(OSError, match=r"."):
        distributed.Client(plain, timeout=2, set_as_default=False)
    host, port = distributed.comm.get_address_host_port(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def ask() -> None:
        with socket.create_connection((host, port)) as line, context.wrap_socket(line) as asking:
            # the connection is refused with the first answer, after the handshake
            asking.sendall(b"hello")
            if not asking.recv(1):
                raise ConnectionError("closed")

    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask()
