"""The server of the page: on this machine only, for those who have the token in its address.

A request is refused if its path does not begin with the token, if its ``Host`` is not this machine, or if a
web page of another origin made it. Only decisions are written.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
import threading
from hmac import compare_digest
from pathlib import Path
from typing import Any

from dissensus.decide.exports import EXPORTS
from dissensus.decide.page import decide_page
from dissensus.decide.session import DecisionSession
from dissensus.errors import DataError, DissensusError, require

MAX_BODY, MAX_DROPPED = 1_000_000, 1 << 31  # bytes
MAX_NAME = 200  # characters of the name of a dropped file
HOSTS = ("127.0.0.1", "localhost")
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FILE_POLICY = {"Content-Security-Policy": "default-src 'none'; sandbox"}  # of images and downloads


class RequestError(Exception):
    """A request that is refused: status code and reason."""


class DecideServer:
    """A session and the server of its page, on a free port.

    Parameters
    ----------
    session
        Labels, fits and decisions.
    """

    def __init__(self, session: DecisionSession) -> None:
        require("starlette", "app")
        uvicorn = require("uvicorn", "app")
        self.session, self.token, self.socket = session, secrets.token_urlsafe(24), socket.socket()
        self.socket.bind((HOSTS[0], 0))
        self.socket.listen()  # a browser that is opened before the server runs waits
        self.port = self.socket.getsockname()[1]
        self.hosts = {f"{host}:{self.port}" for host in HOSTS}
        settings: Any = {"log_level": "error", "access_log": False, "timeout_graceful_shutdown": 1}
        self._server = uvicorn.Server(uvicorn.Config(self.app(), lifespan="off", **settings))
        self._thread = threading.Thread(target=self.run, daemon=True)

    @property
    def url(self) -> str:
        """Address of the page, with its token."""
        return f"http://{HOSTS[0]}:{self.port}/{self.token}/"

    def run(self) -> None:
        """Answer requests until the process is stopped."""
        self._server.run(sockets=[self.socket])

    def start(self) -> None:
        """Answer requests on a thread, as long as the process runs."""
        self._thread.start()

    def stop(self) -> None:
        """Stop a server that was started, and close the file of decisions."""
        self._server.should_exit = True
        self._thread.join()
        self.session.close()

    def app(self) -> Any:
        """Return the ASGI application."""
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.routing import Route

        gets = {"": self.page, "export/{name}": self.export}
        gets |= {answer.__name__: answer for answer in (self.state, self.item, self.report, self.image)}
        posts = (self.next, self.decide, self.undo, self.refit, self.drop)
        routes = [Route(f"/{{token}}/{path}", answer, methods=["GET"]) for path, answer in gets.items()]
        routes += [Route(f"/{{token}}/{answer.__name__}", answer, methods=["POST"]) for answer in posts]
        handlers = dict.fromkeys((RequestError, DissensusError, OSError), _failed)
        guard = [Middleware(Guard, self.check)]
        return Starlette(routes=routes, middleware=guard, exception_handlers=handlers)

    def check(self, path: str, headers: Any) -> None:
        """Raise an error for a request by others."""
        if headers.get("host", "").lower() not in self.hosts:
            raise RequestError(403, "this page is for this machine only")
        if headers.get("origin", "").lower() not in {"", *(f"http://{host}" for host in self.hosts)}:
            raise RequestError(403, "requests by pages of other origins are refused")
        if not compare_digest(f"{path}//".split("/")[1].encode(), self.token.encode()):
            raise RequestError(403, "the token in the address is missing or wrong; open the printed address")

    # ---- the page -------------------------------------------------------------------------------------

    def page(self, request: Any) -> Any:
        """Return the page."""
        from starlette.responses import HTMLResponse

        page, policy = decide_page()
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    def state(self, request: Any) -> Any:
        """Return the state of the fits and of the decisions."""
        return _json(self.session.state())

    def item(self, request: Any) -> Any:
        """Return an item."""
        return _json(self.session.opened().item(request.query_params.get("id", "")))

    def report(self, request: Any) -> Any:
        """Return the report, which has a policy of its own."""
        from starlette.responses import HTMLResponse

        if not self.session.report:
            raise RequestError(404, "the report is not ready yet")
        return HTMLResponse(self.session.report)

    def image(self, request: Any) -> Any:
        """Return an image of an item."""
        from starlette.responses import FileResponse

        items, query = self.session.opened(), request.query_params
        try:
            path = items.images(range(len(items.ids))[int(query["id"])])[int(query["n"])]
        except (KeyError, ValueError, IndexError):
            raise RequestError(404, "there is no such image") from None
        return FileResponse(path, headers=FILE_POLICY)

    def export(self, request: Any) -> Any:
        """Return a file to export."""
        from starlette.responses import Response

        name = request.path_params["name"]
        if name not in EXPORTS:
            raise RequestError(404, f"there is no {name!r} to take")
        kind, content = EXPORTS[name]
        headers = {"Content-Disposition": f'attachment; filename="{name}"'} | FILE_POLICY
        return Response(content(self.session), media_type=kind, headers=headers)

    # ---- decisions ------------------------------------------------------------------------------------

    async def next(self, request: Any) -> Any:
        """Return the next item to decide."""
        body = await _body(request)
        skipped = body.get("skip", [])
        if not isinstance(skipped, list):
            raise DataError("the skipped items are a list")
        return await _answer(self.session.next, list(map(str, skipped)))

    async def decide(self, request: Any) -> Any:
        """Save a decision."""
        body = await _body(request)
        label = None if body.get("unsure") is True else body.get("label")
        if label is None and body.get("unsure") is not True:
            raise DataError("a decision needs a label, or must be marked as unsure")
        return await _answer(self.session.decide, body.get("item"), label, body.get("note", ""))

    async def undo(self, request: Any) -> Any:
        """Undo the last decision."""
        seq = (await _body(request)).get("seq")
        return await _answer(self.session.undo, seq if isinstance(seq, int) else None)

    async def refit(self, request: Any) -> Any:
        """Start a fit with the decisions."""
        await _body(request)
        return await _answer(self.session.refit)

    async def drop(self, request: Any) -> Any:
        """Read a file that is dropped on the page; the decisions go to a folder of its name."""
        from starlette.concurrency import run_in_threadpool

        name = Path(request.query_params.get("name", "").replace("\\", "/").replace("\0", "")).name
        if request.headers.get("content-type") != "application/octet-stream":
            raise RequestError(415, "a file is sent as application/octet-stream")
        if not name.strip(".") or len(name) > MAX_NAME:
            raise RequestError(400, "the file has no name, or a very long one; rename it")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            with path.open("wb") as file:
                async for chunk in request.stream():
                    file.write(chunk)
                    if file.tell() > MAX_DROPPED:
                        raise RequestError(413, "the file is too large; start dissensus open with its name")
            try:
                await run_in_threadpool(self.session.open, path, Path())
            except DissensusError as error:
                raise DataError(str(error).replace(f"{folder}{os.sep}", "")) from None
        return _json({"ok": True})


class Guard:
    """Middleware that refuses requests by others, and adds headers to every answer."""

    def __init__(self, app: Any, check: Any) -> None:
        self.app, self.check = app, check

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        from starlette.datastructures import Headers, MutableHeaders

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self.app
        try:
            if scope["type"] != "http":
                raise RequestError(403, "only requests over HTTP are answered")
            self.check(scope["path"], Headers(scope=scope))
        except RequestError as error:
            answer = _failed(None, error)
        await answer(scope, receive, send_with_headers)


async def _answer(function: Any, *arguments: Any) -> Any:
    """Return the result of a function that may wait, run on another thread."""
    from starlette.concurrency import run_in_threadpool

    return _json(await run_in_threadpool(function, *arguments))


def _json(content: Any) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse(content)


def _failed(request: Any, error: Exception) -> Any:
    """Return the answer to a request that failed."""
    from starlette.responses import JSONResponse

    code, reason = 409, str(error)
    if isinstance(error, RequestError):
        code, reason = error.args
    elif isinstance(error, OSError):
        code, reason = 507, f"not saved: {os.strerror(error.errno or 0)}; free some space and try again"
    return JSONResponse({"error": reason}, code)


async def _body(request: Any) -> dict[str, Any]:
    """Return the JSON object of a request of limited size."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RequestError(415, "a request must be application/json")
    text = b""
    async for chunk in request.stream():
        text += chunk
        if len(text) > MAX_BODY:
            raise RequestError(413, f"a request has at most {MAX_BODY:,} bytes")
    try:
        body = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        raise RequestError(400, "a request must be JSON") from None
    if not isinstance(body, dict):
        raise RequestError(400, "a request must be a JSON object")
    return body
