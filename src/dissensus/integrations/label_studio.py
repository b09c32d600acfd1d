"""A Label Studio ML backend that predicts the population's answers, so that Label Studio can order its queue.

Label Studio requests ``/health`` and ``/setup`` once and ``/predict`` for tasks. The prediction of a task has
the label, the distribution, and as its score the probability that the label is the most common answer; tasks
sampled by prediction score begin with the least certain. An item is recognised by ``data.item`` (as written
by ``dissensus export`` and ``dissensus plan``) or by the id of the task. The server stores nothing and
listens on this machine only::

    python -m dissensus.integrations.label_studio refined --port 9191

Another address needs a token (``--host 0.0.0.0 --token …``), which Label Studio sends as the password of the
model's basic authentication. Requests by web pages (with ``Origin``), with a foreign ``Host`` or without
``application/json`` are refused.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RD
from threading import Timer
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.errors import DataError, DissensusError
from dissensus.models.base import Model

MAX_REQUEST_BYTES, MAX_CONFIG = 50_000_000, 1_000_000  # bytes of a request, characters of a configuration
WAIT_SECONDS, MAX_REQUEST_SECONDS = 30, 120  # for more of a request, and for all of it
LOOPBACK = ("127.0.0.1", "localhost")
_CHOICES = re.compile(r"<Choices\b([^<>]{0,5000})>", re.IGNORECASE)  # no tag is searched twice
_CONTROL_NAMES = re.compile(r"\b(name|toName)\s{0,9}=\s{0,9}[\"']([^\"']*)")


@dataclass
class Backend:
    """A fitted model that answers the requests of Label Studio."""

    model: Model
    question: str = "label"
    to_name: str = "text"
    item_index: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model.label_distributions_, np.ndarray):
            raise DataError("the model has no label distributions of items; use a model of labels by item")
        self.item_index = {str(item): index for index, item in enumerate(self.model.items_)}
        intervals = self.model.intervals()
        self.scores = self.model.label_distributions_.max(axis=1) if intervals is None else intervals.p_top
        self.version = f"dissensus {__version__} {type(self.model).__name__}"

    def health(self) -> dict[str, Any]:
        """Report that the server is up."""
        return {"status": "UP", "model_class": type(self.model).__name__, "model_version": self.version}

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Take the names of the controls from the project's configuration."""
        self._read_config(request.get("schema") or request.get("label_config"))
        return {"model_version": self.version}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Predict every task of a request."""
        tasks = request.get("tasks")
        if not isinstance(tasks, Sequence) or not all(isinstance(task, Mapping) for task in tasks):
            raise DataError("a request to /predict needs a list of tasks")
        self._read_config(request.get("label_config"))
        return {"results": [self.prediction(task) for task in tasks], "model_version": self.version}

    def prediction(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return label, score and distribution of a task's item; for an unknown item, the overall shares."""
        data = task.get("data") if isinstance(task.get("data"), Mapping) else {}
        index = self.item_index.get(str(data.get("item", task.get("id"))))  # type: ignore[union-attr]
        shares = self.model.prior_distribution_ if index is None else self.model.label_distributions_[index]
        distribution = dict(zip(map(str, self.model.classes_), map(float, shares), strict=True))
        result: dict[str, Any] = {"from_name": self.question, "to_name": self.to_name, "type": "choices"}
        result["value"] = {"choices": [str(self.model.classes_[int(np.argmax(shares))])]}
        result["meta"] = {"distribution": distribution, "known": index is not None}
        score = 0.0 if index is None else float(self.scores[index])
        return {"result": [result], "score": score, "model_version": self.version}

    def _read_config(self, config: Any) -> None:
        """Read the names of control and object from ``<Choices name="mood" toName="text">``."""
        tag = _CHOICES.search(config[:MAX_CONFIG]) if isinstance(config, str) else None
        if tag is None:
            return
        names = dict(_CONTROL_NAMES.findall(tag[1]))
        self.question, self.to_name = names.get("name", self.question), names.get("toName", self.to_name)


class RefusedError(Exception):
    """A request that is not from Label Studio: status code and reason."""


def check_headers(headers: Message, local: bool, token: str | None) -> None:
    """Raise an error for a request by a web page, for another host, or without the token."""
    if headers.get("Origin") is not None:
        raise RefusedError(403, "requests by web pages are refused")
    # the host of "localhost:9090" or "[::1]:9090"
    host = re.sub(r":\d+$", "", headers.get("Host", "")).strip("[]").lower()
    if local and host not in (*LOOPBACK, "::1"):
        raise RefusedError(403, f"the host {host[:100]!r} is not this machine")
    kind, _, secret = headers.get("Authorization", "").partition(" ")
    if kind.lower() == "basic":
        with suppress(ValueError):
            secret = b64decode(secret, validate=True).decode().partition(":")[2]
    if token is not None and not compare_digest(secret.strip().encode(), token.encode()):
        raise RefusedError(401, "the token is missing or wrong")


def label_studio_server(
    backend: Backend, host: str = "127.0.0.1", port: int = 9090, token: str | None = None
) -> ThreadingHTTPServer:
    """Create an HTTP server for the backend; port 0 takes a free port.

    A host other than this machine needs a ``token``.
    """
    local = host in LOOPBACK
    if not (local or token):
        raise DataError(f"listening on {host} needs a token, which every request must have; give one")
    answers: dict[str, Callable[[Any], Any]] = {"/predict": backend.predict, "/setup": backend.setup}
    answers["/webhook"] = lambda _: {"status": "OK"}

    class Handler(BaseHTTPRequestHandler):
        timeout = WAIT_SECONDS

        def handle(self) -> None:
            # A request that sends a byte now and then never exceeds the timeout of a read.
            limit = Timer(MAX_REQUEST_SECONDS, self.connection.shutdown, [SHUT_RD])
            limit.daemon = True
            limit.start()
            try:
                with suppress(OSError):  # the client is gone
                    super().handle()
            finally:
                limit.cancel()

        def do_GET(self) -> None:
            if self.path.rstrip("/") in ("", "/health"):
                self._answer(200, backend.health())
            else:
                self._answer(404, {"error": f"{self.path} does not exist"})

        def do_POST(self) -> None:
            answer = answers.get(self.path.split("?")[0].rstrip("/"))
            if answer is None:
                self._answer(404, {"error": f"{self.path} does not exist"})
                return
            size = self.headers.get("Content-Length", "0")
            try:
                check_headers(self.headers, local, token)
                if self.headers.get_content_type() != "application/json":
                    raise RefusedError(415, "a request must be application/json")
                if not re.fullmatch("[0-9]{1,12}", size) or int(size) > MAX_REQUEST_BYTES:
                    raise DataError(f"a request has at most {MAX_REQUEST_BYTES:,} bytes")
                try:
                    request = json.loads(self.rfile.read(int(size)) or b"{}")
                except (ValueError, RecursionError):
                    raise DataError("a request must be JSON") from None
                if not isinstance(request, Mapping):
                    raise DataError("a request must be a JSON object")
                self._answer(200, answer(request))
            except DataError as error:
                self._answer(400, {"error": str(error)})
            except RefusedError as error:
                self.close_connection = True  # the body is not read
                self._answer(error.args[0], {"error": error.args[1]})

        def _answer(self, code: int, content: Mapping[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Do not log requests."""

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    """Serve predictions to Label Studio until Ctrl-C."""
    program = "python -m dissensus.integrations.label_studio"
    parser = argparse.ArgumentParser(prog=program, description=main.__doc__)
    parser.add_argument("run", type=Path, help="directory of a run, or its model.safetensors")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=9090, help="port to listen on; 0 takes a free one")
    parser.add_argument("--token", help="password that requests must have; needed with another --host")
    arguments = parser.parse_args()
    from dissensus.workflow.runs import load_run

    try:
        backend = Backend(load_run(arguments.run).model)
        server = label_studio_server(backend, arguments.host, arguments.port, arguments.token)
    except DissensusError as error:
        sys.exit(f"dissensus: {error}")
    except OSError as error:
        address = f"{arguments.host}:{arguments.port}"
        sys.exit(f"dissensus: cannot listen on {address} ({error.strerror}); choose another --port")
    with server:
        address = f"http://{arguments.host}:{server.server_address[1]}"
        print(f"Serving {len(backend.item_index):,} items at {address}; stop with Ctrl-C", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
