"""A Label Studio ML backend: predictions with the population's answer, so that Label Studio orders its queue.

Label Studio asks ``/health`` and ``/setup`` once and ``/predict`` for tasks. Every task gets the label, the
distribution, and as score how sure the label is: sampled by prediction score, the least sure come first.
An item is known by ``data.item`` (as ``dissensus export`` and ``dissensus plan`` write it), or by the task's
own id. The server answers; it keeps nothing, and listens to this machine alone unless told otherwise::

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

MOST_BYTES = 50_000_000  # of a request
_CHOICES = re.compile(r"<Choices\b[^>]*>", re.IGNORECASE)


@dataclass
class Backend:
    """A fitted model that answers Label Studio's questions."""

    model: Model
    question: str = "label"
    to_name: str = "text"
    known: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model.label_distributions_, np.ndarray):
            raise DataError("the model has no distributions of items to answer with")
        self.known = {str(item): place for place, item in enumerate(self.model.items_)}
        told = self.model.intervals()
        best = self.model.label_distributions_.max(axis=1)
        self.scores = best if told is None else told.sure
        self.version = f"dissensus {__version__} {type(self.model).__name__}"

    def health(self) -> dict[str, Any]:
        """Whether it is there."""
        return {"status": "UP", "model_class": type(self.model).__name__, "model_version": self.version}

    def setup(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Take the names of the controls from the project's configuration."""
        self._read_config(request.get("schema") or request.get("label_config"))
        return {"model_version": self.version}

    def predict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A prediction for each task."""
        tasks = request.get("tasks")
        if not isinstance(tasks, Sequence) or not all(isinstance(task, Mapping) for task in tasks):
            raise DataError("a request to predict needs a list of tasks")
        self._read_config(request.get("label_config"))
        return {"results": [self.prediction(task) for task in tasks], "model_version": self.version}

    def prediction(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """The label, its score and the distribution of a task's item; of one never seen, what is expected."""
        data = task.get("data") if isinstance(task.get("data"), Mapping) else {}
        place = self.known.get(str(data.get("item", task.get("id"))))  # type: ignore[union-attr]
        shares = self.model.prior_distribution_ if place is None else self.model.label_distributions_[place]
        label = str(self.model.classes_[int(np.argmax(shares))])
        distribution = dict(zip(map(str, self.model.classes_), map(float, shares), strict=True))
        result = {
            "from_name": self.question,
            "to_name": self.to_name,
            "type": "choices",
            "value": {"choices": [label]},
            "meta": {"distribution": distribution, "known": place is not None},
        }
        score = 0.0 if place is None else float(self.scores[place])
        return {"result": [result], "score": score, "model_version": self.version}

    def _read_config(self, config: Any) -> None:
        """``<Choices name="mood" toName="text">`` names the control and the object it labels."""
        found = _CHOICES.search(config) if isinstance(config, str) else None
        if found is None:
            return
        names = dict(re.findall(r"\b(name|toName)\s*=\s*[\"']([^\"']*)", found[0]))
        self.question, self.to_name = names.get("name", self.question), names.get("toName", self.to_name)


def label_studio_server(backend: Backend, host: str = "127.0.0.1", port: int = 9090) -> ThreadingHTTPServer:
    """A server for the backend; ``serve_forever()`` begins, port 0 takes a free one."""
    answers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
        "/predict": backend.predict,
        "/setup": backend.setup,
        "/webhook": lambda _: {"status": "OK"},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.rstrip("/") in ("", "/health"):
                self._answer(200, backend.health())
            else:
                self._answer(404, {"error": f"there is nothing at {self.path}"})

        def do_POST(self) -> None:
            answer = answers.get(self.path.split("?")[0].rstrip("/"))
            if answer is None:
                self._answer(404, {"error": f"there is nothing at {self.path}"})
                return
            size = self.headers.get("Content-Length", "0")
            try:
                if not size.isdigit() or int(size) > MOST_BYTES:
                    raise DataError(f"a request has at most {MOST_BYTES:,} bytes")
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
            """Say nothing: requests are Label Studio's affair."""

    return ThreadingHTTPServer((host, port), Handler)


def main() -> None:
    """Answer Label Studio until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m dissensus.integrations.label_studio", description=main.__doc__
    )
    parser.add_argument("run", type=Path, help="a run's directory, or its model.safetensors")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=9090, help="0 takes a free one")
    asked = parser.parse_args()
    from dissensus.workflow.runs import load_run

    try:
        backend = Backend(load_run(asked.run).model)
        server = label_studio_server(backend, asked.host, asked.port)
    except DissensusError as error:
        sys.exit(f"dissensus: {error}")
    except OSError as error:
        address = f"{asked.host}:{asked.port}"
        sys.exit(f"dissensus: {address} cannot be listened to ({error.strerror}); take another --port")
    with server:
        address = f"http://{asked.host}:{server.server_address[1]}"
        print(f"Answers about {len(backend.known):,} items at {address}; Ctrl-C ends it", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
