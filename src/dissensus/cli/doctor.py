"""``dissensus doctor``: what is installed, and how to get what is missing."""

from __future__ import annotations

from typing import Any

from dissensus.cli.app import app, example
from dissensus.cli.options import Json
from dissensus.cli.terminal import say, show_json, show_table


@app.command(epilog=example("dissensus doctor", "dissensus doctor --json"))
def doctor(as_json: Json = False) -> None:
    """Show versions, threads and memory, and which extras are missing and how to get them."""
    from dissensus.cli.environment import environment

    found = environment()
    if as_json:
        show_json(found)
        return
    say(
        f"dissensus {found['dissensus']}, Python {found['python']}, {found['system']}",
        f"environment   {found['environment']}",
        f"cores         {found['cores']}",
        f"memory        {found['memory_gb']} GB",
        f"libraries     {'; '.join(found['libraries'])}",
    )
    core = [[name, number or "missing"] for name, number in found["core"].items()]
    show_table("Core", ["package", "version"], core)
    extras = [_extra_row(name, about) for name, about in found["extras"].items()]
    show_table("Extras", ["extra", "what for", "state"], extras)
    for name, about in found["extras"].items():
        if about["missing"]:
            say(f"{name}: {about['get_it_with']}")


def _extra_row(name: str, about: dict[str, Any]) -> list[str]:
    state = f"missing {', '.join(about['missing'])}" if about["missing"] else "complete"
    return [name, about["for"], state]
