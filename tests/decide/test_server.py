"""Requests to the server: who is answered, what is saved, and what can be taken away."""

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import dissensus as ds
from dissensus.decide.server import DecideServer
from dissensus.decide.session import DecisionSession
from tests.decide.conftest import wait


@contextmanager
def started(session: DecisionSession) -> Iterator[DecideServer]:
    """Start a server for a block."""
    server = DecideServer(session)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(session: DecisionSession) -> Iterator[DecideServer]:
    with started(session) as server:
        yield server


@pytest.fixture
def page(server: DecideServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


def post(page: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return page.post(path, json=body)


def test_a_decision_is_in_the_file_when_it_is_confirmed(page: httpx.Client, session: DecisionSession) -> None:
    item = post(page, "next").json()
    answer = post(page, "decide", item=item["item"], label="yes", note="irony").json()
    assert answer == {"seq": 1, "item": item["item"], "decided": 1, "unsure": 0, "replaced": False}
    last = json.loads(session.journal.path.read_text(encoding="utf-8").splitlines()[-1])
    assert (last["item"], last["label"], last["note"]) == (item["item"], "yes", "irony")
    assert page.get("state").json()["latest"]["seq"] == 1
    assert page.get("item", params={"id": item["item"]}).json()["decision"]["label"] == "yes"
    assert post(page, "decide", item=item["item"], label=None, unsure=True).json()["replaced"]
    assert "in another tab" in post(page, "undo", seq=1).json()["error"]
    assert post(page, "undo", seq=2).json() == {"seq": 3, "item": item["item"], "label": None, "note": ""}
    undone = post(page, "undo").json()
    assert (undone["label"], undone["note"]) == ("yes", "irony")
    assert post(page, "undo").json() == {"error": "there is no decision to undo"}


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({"Host": "example.com"}, ""),
        ({"Host": "127.0.0.1"}, ""),
        ({"Origin": "https://example.com"}, "state"),
        ({"Origin": "null"}, "state"),
        ({"Origin": "http://127.0.0.1:1"}, "state"),
    ],
)
def test_requests_by_others_are_refused(page: httpx.Client, headers: dict[str, str], path: str) -> None:
    answer = page.get(path, headers=headers)
    assert answer.status_code == 403
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("token", ["", "x", "TOKEN", "%74oken", "é"])
def test_another_token_is_refused(server: DecideServer, token: str, session: DecisionSession) -> None:
    for path in ("", "state", "export/gold.csv", "report"):
        answer = httpx.get(f"http://127.0.0.1:{server.port}/{token}/{path}")
        assert answer.status_code == 403
        assert server.token not in answer.text
    answer = httpx.post(f"http://127.0.0.1:{server.port}/{token}/undo", json={})
    assert answer.status_code == 403


def test_pages_of_this_server_and_its_other_name_are_answered(server: DecideServer) -> None:
    port = server.port
    for host in ("127.0.0.1", "localhost"):
        origin = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}"}
        assert httpx.get(f"{server.url}state", headers=origin).status_code == 200


def test_the_policy_allows_the_script_of_the_page_alone(page: httpx.Client) -> None:
    answer = page.get("")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("content", "kind", "code"),
    [
        (b"{}", "text/plain", 415),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"x" * 1_100_000, "application/json", 413),
        (b'{"item": "c1"}', "application/json", 409),
        (b'{"item": "c1", "label": 3}', "application/json", 409),
        (b'{"item": null, "label": "yes"}', "application/json", 409),
        (b'{"item": "c1", "label": ["yes"]}', "application/json", 409),
        (b'{"item": "c1", "label": "yes", "note": {}}', "application/json", 409),
        (b'{"item": "\\ud800", "label": "yes"}', "application/json", 409),
    ],
)
def test_an_invalid_request_gets_one_line(
    page: httpx.Client, session: DecisionSession, content: bytes, kind: str, code: int
) -> None:
    answer = page.post("decide", content=content, headers={"Content-Type": kind})
    assert answer.status_code == code
    assert "\n" not in answer.json()["error"]
    assert session.decisions == {}


@pytest.mark.parametrize(
    "path", ["item?id=none", "image?id=0&n=0", "image?id=-1&n=0", "image?id=x", "export/none"]
)
def test_what_is_not_there_is_said(page: httpx.Client, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code in (404, 409)
    assert answer.json()["error"]


def test_a_full_disk_is_said_and_the_decision_not_counted(
    page: httpx.Client, session: DecisionSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dissensus.tables.decisions.os.write", full)
    answer = post(page, "decide", item="c1", label="yes")
    monkeypatch.undo()
    assert answer.status_code == 507
    assert "No space left on device" in answer.json()["error"]
    assert page.get("state").json()["decided"] == 0


def test_exports(page: httpx.Client, session: DecisionSession, tmp_path: Path) -> None:
    for item, label in (("c1", "yes"), ("c2", "no"), ("c3", None)):
        version = session.version
        post(page, "decide", item=item, label=label, unsure=label is None, note='a "note", with commas')
        wait(lambda version=version: session.version > version)
    gold = list(csv.DictReader(io.StringIO(page.get("export/gold.csv").text)))
    assert [(row["item"], row["label"]) for row in gold] == [("c1", "yes"), ("c2", "no")]
    assert gold[0]["note"] == 'a "note", with commas'
    rows = {row["item"]: row for row in csv.DictReader(io.StringIO(page.get("export/labels.csv").text))}
    assert len(rows) == 30
    assert (rows["c1"]["label"], rows["c1"]["decided"], float(rows["c1"]["p_yes"])) == ("yes", "true", 1.0)
    assert rows["c3"]["decided"] == "false"
    for name, row in rows.items():
        assert row["label"] == ("yes" if float(row["p_yes"]) > float(row["p_no"]) else "no"), name
    # the file of gold is read as gold
    path = tmp_path / "gold.csv"
    path.write_text(page.get("export/gold.csv").text, encoding="utf-8")
    with_gold = session.labels.with_tables(gold={"item": ["c1", "c2"], "label": ["yes", "no"]})
    read = ds.models.confusion.with_gold(session.labels, path)
    np.testing.assert_array_equal(read.gold, with_gold.gold)
    tasks = {task["data"]["item"]: task for task in page.get("export/label-studio.json").json()}
    assert tasks["c1"]["predictions"][0]["result"][0]["value"] == {"choices": ["yes"]}
    assert tasks["c1"]["data"]["text"] == "comment 1"
    records = {record["id"]: record for record in page.get("export/argilla.json").json()}
    assert records["c2"]["suggestions"]["label"]["value"] == "no"
    assert records["c2"]["metadata"]["action"] == "decided"
    assert page.get("export/decisions.jsonl").text == session.journal.path.read_text(encoding="utf-8")


def test_the_methods_paragraph_and_the_table_have_the_figures_of_the_description(
    page: httpx.Client, session: DecisionSession
) -> None:
    described = ds.describe(session.labels)
    ends = f"{described.alpha_low:.2f} to {described.alpha_high:.2f}"
    alpha = f"{described.alpha:.2f} (95 % interval {ends}, nominal)"
    before = page.get("export/methods.txt").text
    assert "30 items received 180 labels from 6 annotators, 6.0 (6 to 6) per item." in before
    assert f"Krippendorff’s α is {alpha}." in before
    assert "adjudicated" not in before.lower()
    post(page, "decide", item="c1", label="yes")
    post(page, "decide", item="c2", label=None, unsure=True)
    after = page.get("export/methods.txt").text
    assert "1 item was adjudicated. Labels of the other items are those of" in after
    assert "1 item was left undecided." in after
    table = page.get("export/table.tex").text
    assert table.startswith("\\begin{tabular}{ll}\n\\toprule\n")
    assert f"Krippendorff's $\\alpha$ & {alpha} \\\\".replace("%", "\\%") in table
    assert not re.search(r"(?<!\\)[%#_]", table)


def test_a_file_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"i{m},a{n},{'yn'[(m * n) % 2]}" for m in range(20) for n in range(4)]
    table = "item,annotator,label\n" + "\n".join(rows) + "\n"
    octets = {"Content-Type": "application/octet-stream"}
    with started(DecisionSession()) as server, httpx.Client(base_url=server.url, timeout=60) as page:
        assert page.get("state").json()["stage"] == "waiting"
        assert post(page, "next").json()["error"].startswith("the labels are not ready")
        bad = page.post("drop", params={"name": "votes.csv"}, content="item,label\n1,x\n", headers=octets)
        assert bad.status_code == 409
        assert "votes.csv" in bad.json()["error"]
        assert page.post("drop", params={"name": "votes.csv"}, content=table).status_code == 415
        for name in ("", "..", "x" * 300 + ".csv"):
            assert page.post("drop", params={"name": name}, content=table, headers=octets).status_code == 400
        good = page.post("drop", params={"name": "../../votes.csv"}, content=table, headers=octets)
        assert good.json() == {"ok": True}
        wait(lambda: page.get("state").json()["stage"] == "ready")
        assert post(page, "decide", item="i3", label="y").status_code == 200
        again = page.post("drop", params={"name": "votes.csv"}, content=table, headers=octets)
        assert "labels are open already" in again.json()["error"]
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["votes-decisions/decisions.jsonl"]


def test_images(tmp_path: Path) -> None:
    (tmp_path / "votes").mkdir()
    (tmp_path / "votes" / "cat.png").write_bytes(b"\x89PNG")
    rows = [f"i{m},a{n},{'yn'[(m * n) % 2]}" for m in range(20) for n in range(4)]
    (tmp_path / "votes" / "votes.csv").write_text(
        "item,annotator,label\n" + "\n".join(rows), encoding="utf-8"
    )
    (tmp_path / "items.csv").write_text("item,picture\n" + "".join(f"i{m},cat.png\n" for m in range(20)))
    session = DecisionSession(
        tmp_path / "d", lambda path: ds.read_annotations(path, items=tmp_path / "items.csv")
    )
    session.open(tmp_path / "votes" / "votes.csv")
    wait(lambda: session.items is not None)
    with started(session) as server, httpx.Client(base_url=server.url) as page:
        item = post(page, "next").json()
        picture = page.get(item["images"][0])
        assert (picture.content, picture.headers["Content-Type"]) == (b"\x89PNG", "image/png")
        assert "sandbox" in picture.headers["Content-Security-Policy"]


def test_a_notebook_shows_the_page(tmp_path: Path) -> None:
    rows = [(f"i{m}", f"a{n}", "yn"[(m * n) % 2]) for m in range(20) for n in range(4)]
    item, annotator, label = map(list, zip(*rows, strict=True))
    result = ds.fit(ds.Annotations.from_arrays(item, annotator, label), model="fmm")
    ds.view(result, tmp_path / "d")
    view = ds.view(result, tmp_path / "d")  # the cell runs again
    assert f'src="{view.url}"' in view._repr_html_()
    assert httpx.get(view.url).status_code == 200
    wait(lambda: httpx.get(view.url + "state").json()["stage"] == "ready")
    assert httpx.post(view.url + "decide", json={"item": "i2", "label": "n"}).status_code == 200
    assert view.decisions == {"i2": "n"}
    view.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(view.url)
    view.close()  # again
