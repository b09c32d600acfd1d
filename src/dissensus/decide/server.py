"""The server of the page: on this machine only, for those who have the token in its address.

A request is refused if its path does not begin with the token, if its ``Host`` is not this machine, or if a
web page of another origin made it. Only decisions and a file that is dropped on the page are written.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from hmac import compare_digest
from pathlib import Path
from typing import Any

from dissensus.decide.page import decide_page
from dissensus.decide.room import Room
from dissensus.decide.takeout import TAKEOUTS
from dissensus.errors import DataError, DissensusError, require
from dissensus.tables.atomic import atomic_path

MAX_BODY, MAX_DROPPED = 1_000_000, 1 << 31  # bytes
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
    """A room and the server of its page, on a free port.

    Parameters
    ----------
    room
        Labels, fits and decisions.
    """

    def __init__(self, room: Room) -> None:
        require("starlette", "app")
        require("uvicorn", "app")
        self.room, self.token, self.socket = room, secrets.token_urlsafe(24), socket.socket()
        self.socket.bind((HOSTS[0], 0))
        self.socket.listen()  # a browser that is opened before the server runs waits
        self.hosts = {f"{host}:{self.socket.getsockname()[1]}" for host in HOSTS}

    @property
    def url(self) -> str:
        """Address of the page, with its token."""
        return f"http://{HOSTS[0]}:{self.socket.getsockname()[1]}/{self.token}/"

    def run(self) -> None:
        """Answer requests until the process is stopped."""
        import uvicorn

        settings: Any = {"log_level": "error", "access_log": False, "timeout_graceful_shutdown": 1}
        uvicorn.Server(uvicorn.Config(self.app(), lifespan="off", **settings)).run(sockets=[self.socket])

    def start(self) -> None:
        """Answer requests on a thread, as long as the process runs."""
        threading.Thread(target=self.run, daemon=True).start()

    def app(self) -> Any:
        """Return the ASGI application."""
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.routing import Route

        gets = {
            "": self.page,
            "state": self.state,
            "item": self.item,
            "report": self.report,
            "image": self.image,
        }
        posts = {
            "next": self.next,
            "decide": self.decide,
            "undo": self.undo,
            "refit": self.refit,
            "drop": self.drop,
        }
        routes = [Route(f"/{{token}}/{path}", answer, methods=["GET"]) for path, answer in gets.items()]
        routes += [Route(f"/{{token}}/{path}", answer, methods=["POST"]) for path, answer in posts.items()]
        routes.append(Route("/{token}/take/{name}", self.take))
        handlers = dict.fromkeys((RequestError, DissensusError, OSError), _failed)
        return Starlette(
            routes=routes, middleware=[Middleware(Guard, self.check)], exception_handlers=handlers
        )

    def check(self, path: str, headers: Any) -> None:
        """Raise an error for a request by others."""
        if headers.get("host", "").lower() not in self.hosts:
            raise RequestError(403, "this page is for this machine only")
        if headers.get("origin", "").lower() not in {"", *(f"http://{host}" for host in self.hosts)}:
            raise RequestError(403, "requests by pages of other origins are refused")
        if not compare_digest(path.split("/")[1].encode(), self.token.encode()):
            raise RequestError(403, "the token in the address is missing or wrong; open the printed address")

    # ---- the page -------------------------------------------------------------------------------------

    def page(self, request: Any) -> Any:
        """Return the page."""
        from starlette.responses import HTMLResponse

        page, policy = decide_page()
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    def state(self, request: Any) -> Any:
        """Return the state of the fits and of the decisions."""
        return _json(self.room.state())

    def item(self, request: Any) -> Any:
        """Return an item."""
        return _json(self.room.opened().item(request.query_params.get("id", "")))

    def report(self, request: Any) -> Any:
        """Return the report, which has a policy of its own."""
        from starlette.responses import HTMLResponse

        if not self.room.report:
            raise RequestError(404, "the report is not ready yet")
        return HTMLResponse(self.room.report)

    def image(self, request: Any) -> Any:
        """Return an image of an item."""
        from starlette.responses import FileResponse

        items, query = self.room.opened(), request.query_params
        try:
            path = items.images(range(len(items.ids))[int(query["id"])])[int(query["n"])]
        except (KeyError, ValueError, IndexError):
            raise RequestError(404, "there is no such image") from None
        return FileResponse(path, headers=FILE_POLICY)

    def take(self, request: Any) -> Any:
        """Return a file to take away."""
        from starlette.responses import Response

        name = request.path_params["name"]
        if name not in TAKEOUTS:
            raise RequestError(404, f"there is no {name!r} to take")
        kind, content = TAKEOUTS[name]
        headers = {"Content-Disposition": f'attachment; filename="{name}"'} | FILE_POLICY
        return Response(content(self.room), media_type=kind, headers=headers)

    # ---- decisions ------------------------------------------------------------------------------------

    async def next(self, request: Any) -> Any:
        """Return the next item to decide."""
        body = await _body(request)
        return await _answer(self.room.next, list(map(str, body.get("skip") or [])))

    async def decide(self, request: Any) -> Any:
        """Save a decision."""
        body = await _body(request)
        label = None if body.get("unsure") is True else body.get("label")
        if label is None and body.get("unsure") is not True:
            raise DataError("a decision needs a label, or must be marked as unsure")
        return await _answer(self.room.decide, body.get("item"), label, body.get("note", ""))

    async def undo(self, request: Any) -> Any:
        """Undo the last decision."""
        await _body(request)
        return await _answer(self.room.undo)

    async def refit(self, request: Any) -> Any:
        """Start a fit with the decisions."""
        await _body(request)
        return await _answer(self.room.refit)

    async def drop(self, request: Any) -> Any:
        """Save a file that is dropped on the page, and open it."""
        from starlette.concurrency import run_in_threadpool

        name = Path(request.query_params.get("name", "").replace("\\", "/")).name
        if request.headers.get("content-type") != "application/octet-stream":
            raise RequestError(415, "a file is sent as application/octet-stream")
        if not name or name.startswith(".") or self.room.labels is not None:
            raise DataError("labels are open already; start dissensus open again for another file")
        folder = self.room.folder or Path(f"{Path(name).stem}-decisions")
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder / name) as temporary, temporary.open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
                if file.tell() > MAX_DROPPED:
                    raise RequestError(413, "the file is too large; start dissensus open with its name")
        before, self.room.folder = self.room.folder, folder
        try:
            await run_in_threadpool(self.room.open, folder / name)
        except DissensusError:
            self.room.folder = before  # another file has a folder of its own name
            raise
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
