"""The Label Studio ML backend over HTTP, and round trips with Hugging Face datasets and Argilla."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.integrations import label_studio
from dissensus.integrations.label_studio import Backend, label_studio_server, main
from dissensus.tables.write import write_tasks

MODEL = ds.FMM(4, seed=0).fit(ds.datasets.load("canteen"))
CONFIG = '<View><Text name="comment" value="$text"/><Choices toName="comment" name="mood"/></View>'


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = label_studio_server(Backend(MODEL), port=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def request(address: str, body: Any = None) -> tuple[int, Any]:
    content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    message = urllib.request.Request(address, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(message, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_backend_answers_requests_of_label_studio(address: str) -> None:
    assert request(f"{address}/health")[1]["status"] == "UP"
    setup = {"project": "7", "schema": CONFIG, "hostname": "http://localhost:8080", "access_token": "x"}
    version = request(f"{address}/setup", setup)[1]["model_version"]
    tasks = [{"id": 5, "data": {"item": "comment02", "text": "…"}}, {"id": 99, "data": {"text": "new"}}]
    code, answer = request(f"{address}/predict", {"tasks": tasks, "label_config": CONFIG, "project": "7"})
    assert code == 200
    known, new = answer["results"]
    index = MODEL.items_.tolist().index("comment02")
    assert known["result"][0]["value"]["choices"] == [MODEL.predict()[index]]
    assert (known["result"][0]["from_name"], known["result"][0]["to_name"]) == ("mood", "comment")
    shares = list(known["result"][0]["meta"]["distribution"].values())
    np.testing.assert_allclose(shares, MODEL.label_distributions_[index])
    assert known["score"] == pytest.approx(MODEL.intervals().p_top[index])
    assert (new["score"], new["result"][0]["meta"]["known"]) == (0.0, False)
    assert known["model_version"] == answer["model_version"] == version
    assert request(f"{address}/webhook", {"action": "ANNOTATION_CREATED"}) == (200, {"status": "OK"})


def test_backend_rejects_bad_requests(address: str) -> None:
    assert request(f"{address}/nothing")[0] == request(f"{address}/nothing", {})[0] == 404
    assert request(f"{address}/predict", b"{")[1] == {"error": "a request must be JSON"}
    assert request(f"{address}/predict", b"[1]")[0] == 400
    assert request(f"{address}/predict", {"tasks": 3})[0] == 400


def raw_status(address: str, *lines: str, body: str = "{}") -> int:
    """Send a request as it is written and return the status code."""
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "", body]).encode())
        return int(connection.recv(100).split()[1])


HOST, JSON_TYPE, LENGTH = "Host: localhost:9090", "Content-Type: application/json", "Content-Length: 2"
REFUSED = [
    (["POST /setup HTTP/1.1", HOST, JSON_TYPE, LENGTH], 200),
    (["POST /setup HTTP/1.1", "Host: [::1]:9090", JSON_TYPE, LENGTH], 200),
    (["POST /setup HTTP/1.1", "Host: evil.example", JSON_TYPE, LENGTH], 403),
    (["POST /setup HTTP/1.1", HOST, "Origin: http://evil.example", JSON_TYPE, LENGTH], 403),
    (["POST /setup HTTP/1.1", HOST, "Content-Type: text/plain", LENGTH], 415),
    (["POST /setup HTTP/1.1", HOST, LENGTH], 415),
    (["POST /setup HTTP/1.1", HOST, JSON_TYPE, "Content-Length: \u00b2"], 400),
    (["POST /setup HTTP/1.1", HOST, JSON_TYPE, "Content-Length: -1"], 400),
    (["POST /setup HTTP/1.1", HOST, JSON_TYPE, "Content-Length: 99999999999"], 400),
]


@pytest.mark.parametrize(("lines", "status"), REFUSED)
def test_requests_that_are_not_by_label_studio_are_refused(
    address: str, lines: list[str], status: int
) -> None:
    assert raw_status(address, *lines) == status


def test_other_addresses_need_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"listening on 0\.0\.0\.0 needs a token"):
        label_studio_server(Backend(MODEL), "0.0.0.0", 0)
    server = label_studio_server(Backend(MODEL), "0.0.0.0", 0, token="s3cret")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    first = ["POST /setup HTTP/1.1", "Host: labels.example", JSON_TYPE, LENGTH]
    basic = b64encode(b"anyone:s3cret").decode()
    headers = {"": 401, "Bearer wrong": 401, "Basic !": 401, "Bearer s3cret": 200, f"Basic {basic}": 200}
    for value, status in headers.items():
        assert raw_status(address, *first, f"Authorization: {value}") == status, value
    assert request(f"{address}/health")[0] == 200
    server.shutdown()
    server.server_close()


def test_hostile_requests_do_not_stop_the_server(address: str) -> None:
    """A thousand requests, among them configurations that would be searched in quadratic time."""
    rng = np.random.default_rng(0)
    texts = [
        "<Choices" * 20_000,
        "<Choices " + "name = " * 20_000,
        "[" * 50_000,
        "{" * 1000,
        "\0" * 1000,
        '"' * 99,
    ]
    slowest = 0.0
    for number in range(1000):
        text = texts[number % len(texts)]
        body = json.dumps({"tasks": [], "label_config": text}) if number % 2 else text
        cut = int(rng.integers(1, len(body) + 1)) if number % 3 == 0 else len(body)
        request(f"{address}/{('predict', 'setup', 'webhook', 'none')[number % 4]}", body[:cut].encode())
        if number % 50 == 0:
            started = time.monotonic()
            assert request(f"{address}/health")[0] == 200
            slowest = max(slowest, time.monotonic() - started)
    assert slowest < 1


POST = (
    b"POST /setup HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
)


@pytest.mark.parametrize("start", [b"", b"GET /health HTTP/1.1\r\nHost: loc", POST])
def test_slow_requests_end(address: str, start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a byte at a time, each long before a read would time out, until the server ends the request."""
    monkeypatch.setattr(label_studio, "MAX_REQUEST_SECONDS", 0.5)
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(start)
        connection.settimeout(0.05)
        for _ in range(400):
            try:
                connection.send(b"x")
                connection.recv(100)
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the request was never ended")
    assert request(f"{address}/health")[0] == 200


def test_main_reports_missing_run_and_busy_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MODEL.save(tmp_path / "model.safetensors")
    with label_studio_server(Backend(MODEL), port=0) as server:
        port = str(server.server_address[1])
        for run, message in (("nothing", "nothing"), ("model.safetensors", "cannot listen on 127.0.0.1:")):
            monkeypatch.setattr("sys.argv", ["label_studio", str(tmp_path / run), "--port", port])
            with pytest.raises(SystemExit, match=message):
                main()


def test_hugging_face_datasets_are_read_and_written(tmp_path: Path) -> None:
    import datasets

    text, moods = datasets.Value("string"), datasets.ClassLabel(names=["complaint", "praise"])
    features = datasets.Features({"item": text, "annotator": text, "label": moods})
    columns = {"item": ["a", "a", "b", "b"], "annotator": list("xyxy"), "label": [0, 1, 1, -1]}
    votes = datasets.Dataset.from_dict(columns, features=features)
    labels = ds.read_annotations(votes)
    assert labels.classes.tolist() == ["complaint", "praise"]
    assert labels.counts.tolist() == [[1, 1], [0, 1]]
    assert ds.read_annotations(votes.select([0, 2])).n_labels == 2  # a dataset with an index of rows
    with pytest.raises(DataError, match=r"has several splits \(train, test\)"):
        ds.read_annotations(datasets.DatasetDict(train=votes, test=votes))
    model = ds.EmpiricalDistribution().fit(labels)
    refined = datasets.load_from_disk(str(ds.write_labels(model, tmp_path / "refined", "huggingface")))
    assert refined["item"][:] == ["a", "b"]
    np.testing.assert_allclose(refined["p_praise"][:], model.label_distributions_[:, 1])


@pytest.mark.filterwarnings("ignore")
def test_argilla_reads_our_tasks_and_we_read_its_answers(tmp_path: Path) -> None:
    import argilla
    from argilla.records._io import JsonIO

    row = {"item": "c1", "text": "Great, soup again.", "action": "label", "n_more": 2, "reason": "split"}
    row |= {"label": "praise", "share": 0.6}
    record = JsonIO._records_from_json(
        write_tasks([row], tmp_path / "records.json", "argilla", [], question="mood")
    )[0]
    assert (record.id, record.fields["text"]) == ("c1", "Great, soup again.")
    suggestion = record.suggestions["mood"]
    assert (suggestion.value, suggestion.score) == ("praise", 0.6)
    answers = {"7f3a1c52-0000-0000-0000-000000000001": "complaint"}
    answers |= {"7f3a1c52-0000-0000-0000-000000000002": "praise"}
    for user, answer in answers.items():
        record.responses.add(argilla.Response("mood", answer, user_id=user, status="submitted"))
    JsonIO.to_json([record], tmp_path / "answers.json")
    labels = ds.read_annotations(tmp_path / "answers.json")
    assert labels.items.tolist() == ["c1"]
    assert dict(zip(labels.annotators, labels.classes[labels.label], strict=True)) == answers
