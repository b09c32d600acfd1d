"""A Label Studio ML backend that predicts the population's answers, so that Label Studio can order its queue.

Label Studio requests ``/health`` and ``/setup`` once and ``/predict`` for tasks. The prediction of a task has
the label, the distribution, and as its score the probability that the label is the most common answer; tasks
sampled by prediction score begin with the least certain. An item is recognised by ``data.item`` (as written
by ``dissensus export`` and ``dissensus plan``) or by the id of the task. The server stores nothing and
listens on this machine only, unless ``--host`` names another address::

    python -m dissensus.integrations.label_studio refined --port 9191
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.errors import DataError, DissensusError
from dissensus.models.base import Model

MAX_REQUEST_BYTES = 50_000_000
_CHOICES = re.compile(r"<Choices\b[^>]*>", re.IGNORECASE)


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
        label = str(self.model.classes_[int(np.argmax(shares))])
        distribution = dict(zip(map(str, self.model.classes_), map(float, shares), strict=True))
        result: dict[str, Any] = {"from_name": self.question, "to_name": self.to_name, "type": "choices"}
        result["value"] = {"choices": [label]}
        result["meta"] = {"distribution": distribution, "known": index is not None}
        score = 0.0 if index is None else float(self.scores[index])
        return {"result": [result], "score": score, "model_version": self.version}

    def _read_config(self, config: Any) -> None:
        """Read the names of control and object from ``<Choices name="mood" toName="text">``."""
        tag = _CHOICES.search(config) if isinstance(config, str) else None
        if tag is None:
            return
        names = dict(re.findall(r"\b(name|toName)\s*=\s*[\"']([^\"']*)", tag[0]))
        self.question, self.to_name = names.get("name", self.question), names.get("toName", self.to_name)


def label_studio_server(backend: Backend, host: str = "127.0.0.1", port: int = 9090) -> ThreadingHTTPServer:
    """Create an HTTP server for the backend; port 0 takes a free port."""
    answers: dict[str, Callable[[Any], Any]] = {"/predict": backend.predict, "/setup": backend.setup}
    answers["/webhook"] = lambda _: {"status": "OK"}

    class Handler(BaseHTTPRequestHandler):
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
                if not size.isdigit() or int(size) > MAX_REQUEST_BYTES:
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
    arguments = parser.parse_args()
    from dissensus.workflow.runs import load_run

    try:
        backend = Backend(load_run(arguments.run).model)
        server = label_studio_server(backend, arguments.host, arguments.port)
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
