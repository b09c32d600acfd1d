"""Build hook: compile the C files of src/dissensus/compiled into one library, by cc or else by ziglang."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIGLANG = "ziglang==0.17.0"  # a C compiler from PyPI, for machines without one
# The same bits from every compiler: no contraction into fused operations, no other order of sums.
FLAGS = ["-std=c99", "-O3", "-ffp-contract=off", "-shared", "-fPIC", "-Wno-psabi"]


def installed_compiler() -> list[str]:
    """Return the command of the C compiler, which ``CC`` may name; empty if there is none."""
    commands = [shlex.split(os.environ.get("CC", "")), ["cc"], ["gcc"], ["clang"]]
    return next((command for command in commands if command and shutil.which(command[0])), [])


def compile_loops(directory: Path) -> None:
    """Compile all C files of a directory into ``loops.so``, with the checksum of their text."""
    sources, checksum = sorted(directory.glob("*.c")), 0
    for source in sources:
        checksum = zlib.crc32(source.read_bytes().replace(b"\r\n", b"\n"), checksum)
    command = installed_compiler() or [sys.executable, "-m", "ziglang", "cc"]
    if sysconfig.get_platform().endswith("universal2"):  # a Python for both processors of macOS
        command = [*command, "-arch", "x86_64", "-arch", "arm64"]
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        stamp, built = Path(folder) / "checksum.c", Path(folder) / "loops.so"
        stamp.write_text(f"const unsigned source_checksum = {checksum}u;\n")
        subprocess.run([*command, *FLAGS, *sources, stamp, "-o", built, "-lm"], check=True)
        built.replace(directory / "loops.so")  # a process that has loaded the old library keeps it


class CompileLoops(BuildHookInterface):
    """Compiles the loops for a wheel or an editable install, which then serves every version of Python."""

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling."""
        return [] if installed_compiler() else [ZIGLANG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile beside the sources, and name the platform in the tag of the wheel."""
        compile_loops(Path(self.root) / "src" / "dissensus" / "compiled")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"py3-none-{platform}")
        build_data["artifacts"].append("src/dissensus/compiled/loops.so")


if __name__ == "__main__":
    compile_loops(Path(__file__).parent / "src" / "dissensus" / "compiled")
