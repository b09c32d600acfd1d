"""``dissensus serve``: a fitted model answers a labelling tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.app import app, example, option
from dissensus.cli.terminal import count, say


@app.command(
    epilog=example(
        "dissensus serve refined --label-studio", "dissensus serve refined --label-studio --port 9191"
    )
)
def serve(
    place: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run's directory, or its model.safetensors.")
    ],
    label_studio: Annotated[
        bool, option(None, "Be an ML backend of Label Studio (the only tool so far).", "--label-studio")
    ] = False,
    host: Annotated[str, option("ADDRESS", "Where to listen.")] = "127.0.0.1",
    port: Annotated[int, option("N", "Port; 0 takes a free one.")] = 9090,
    question: Annotated[
        str, option("NAME", "Name of the control, if the project does not say it.")
    ] = "label",
    to_name: Annotated[
        str, option("NAME", "Name of the object that is labelled, if the project does not say it.")
    ] = "text",
) -> None:
    """Answer a labelling tool with the population's distributions until Ctrl-C."""
    from dissensus.errors import ParameterError
    from dissensus.integrations.label_studio import Backend, label_studio_server
    from dissensus.workflow.runs import open_run

    if not label_studio:
        raise ParameterError("serve needs to know for which tool; add --label-studio")
    backend = Backend(open_run(place).model, question, to_name)
    try:
        server = label_studio_server(backend, host, port)
    except OSError as error:
        raise ParameterError(
            f"{host}:{port} cannot be listened to ({error.strerror}); take another --port"
        ) from None
    with server:
        address = f"http://{host}:{server.server_address[1]}"
        say(f"Answers about {count(len(backend.known), 'item')} at {address}; Ctrl-C ends it")
        server.serve_forever()
