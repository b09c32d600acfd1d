"""Program whose child processes run commands of dissensus and are stopped at a given moment.

    python victim.py < plans

A plan is one line of JSON: the ``command`` line, the folder (``cwd``) to run it in, the ``signal`` to send,
and the file operation ``at`` which it is sent (0: never; null: run in this process, to import what commands
need). File operations are opening, renaming, linking and removing. The output is one line of JSON per plan:
the exit ``code``, the number ``n`` of operations, and the ``output`` of the child.
"""

import json
import os
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import dissensus.cli

EVENTS = {
    "open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate",
    "shutil.rmtree",
}  # fmt: skip


def counting(cwd: str, at: int, number: int) -> list[int]:
    """Count file operations below a folder from now on, and send this process the signal at one of them."""
    count = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS:
            return
        if event == "open" and not str(arguments[0]).startswith(cwd):
            return
        count[0] += 1
        if count[0] == at:
            os.kill(os.getpid(), number)

    sys.addaudithook(hook)
    return count


def child(plan: dict[str, Any], output: int, count_pipe: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(plan["cwd"])
    sys.argv = ["dissensus", *plan["command"]]
    code: Any = 1
    count = counting(os.path.realpath(plan["cwd"]), plan["at"], plan["signal"])
    try:
        dissensus.cli.main()
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException as error:  # reported as a fault
        print(f"Traceback: {error!r}")
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(count_pipe, str(count[0]).encode())
    os._exit(code)


def run(plan: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            child(plan, output.fileno(), writing)
        os.close(writing)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        n_operations = os.read(reading, 100)
        os.close(reading)
        output.seek(0)
        return {"code": code, "n": int(n_operations or 0), "output": output.read().decode()}


def load(plan: dict[str, Any]) -> dict[str, Any]:
    """Run a command in this process, so that child processes have everything imported."""
    os.chdir(plan["cwd"])
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):  # noqa: PTH123
        dissensus.cli.application()(plan["command"], prog_name="dissensus", standalone_mode=False)
    return {}


def main() -> None:
    for line in sys.stdin:
        plan = json.loads(line)
        print(json.dumps(load(plan) if plan["at"] is None else run(plan)), flush=True)


if __name__ == "__main__":
    main()
