# Owned by the project template; changed only by `copier update`.
"""The last step of a build: checks the library and writes its build record.

1. Every undefined mlir:: and llvm:: symbol of the library and of _native is
   exported by the libtriton.so that they were built for.
2. The self-test across the border to libtriton holds, in a process of its own.
3. The record, which the runtime compares with the installed Triton, is written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile

# Itanium names: (prefixes of) functions, vtables, type information, guards of
# the namespaces mlir and llvm.
_MLIR = re.compile(r"_Z(T[VISTWC]|GV|GR|Th|Tv|Tc)?(N?K?)(St)?\w*?(4mlir|4llvm)")

_SELF_TEST = """
import ctypes, sys
import triton._C.libtriton
library = ctypes.CDLL(sys.argv[1])
@ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int)
def report(name, held):
    print(held, name.decode(), flush=True)
sys.exit(library.tritonPluginSelfTest(report) != 0)
"""


def undefined_symbols(path: Path) -> Iterator[str]:
    """The mlir:: and llvm:: symbols that `path` leaves to other libraries."""
    with path.open("rb") as file:
        for symbol in ELFFile(file).get_section_by_name(".dynsym").iter_symbols():
            undefined = symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_WEAK"
            if undefined and _MLIR.match(symbol.name):
                yield symbol.name


def missing_symbols(path: Path, libtriton: Path) -> list[str]:
    """Those of them that `libtriton` does not export."""
    with libtriton.open("rb") as file:
        exported = ELFFile(file).get_section_by_name(".gnu.hash")
        return [name for name in undefined_symbols(path) if exported.get_symbol(name) is None]


def self_test(library: Path) -> list[str]:
    """The names of the checks that did not hold; a crash counts as the check it happened in."""
    # Not as an enabled plugin of this process's parent.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_ENABLED")}
    command = [sys.executable, "-c", _SELF_TEST, str(library.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    failed = [name for held, name in lines if held == "0"]
    if done.returncode and not failed:
        started = lines[-1][1] if lines and lines[-1][0] == "-1" else "loading the library"
        reason = done.stderr.strip().splitlines()
        failed = [f"{started} (ended with status {done.returncode}{': ' + reason[-1] if reason else ''})"]
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("library", "native", "toolchain", "record"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--compiler", required=True)
    options = parser.parse_args()
    toolchain = json.loads(options.toolchain.read_text())
    libtriton = Path(toolchain["triton_library"])

    for path in (options.library, options.native):
        if missing := missing_symbols(path, libtriton):
            print(
                f"error: {path.name} needs {len(missing)} symbols that libtriton.so of Triton "
                f"{toolchain['triton_version']} does not export, {missing[0]} among them. Use what libtriton has, or build "
                f"with its own LLVM ({toolchain['triton_llvm_commit']}).",
                file=sys.stderr,
            )
            return 1
    if failed := self_test(options.library):
        print(
            f"error: {options.library.name} and libtriton.so disagree about: {'; '.join(failed)}. The headers or the "
            f"compiler are not those of libtriton; build with clang and LLVM {toolchain['triton_llvm_commit']}.",
            file=sys.stderr,
        )
        return 1
    record = {
        "version": options.version,
        "triton": toolchain["triton_version"],
        "llvm_commit": toolchain["triton_llvm_commit"],
        "llvm_match": toolchain["triton_llvm_matched"],
        "compiler": options.compiler,
        "plugin_api": _plugin_api(Path(toolchain["triton_include_dir"])),
        "sha256": hashlib.sha256(options.library.read_bytes()).hexdigest(),
        "self_test": "passed",
    }
    options.record.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def _plugin_api(include: Path) -> int:
    header = (include / "triton" / "Tools" / "PluginUtils.h").read_text()
    match = re.search(r"define TRITON_PLUGIN_API_VERSION (\d+)", header)
    if match is None:
        raise SystemExit("error: PluginUtils.h of this Triton defines no TRITON_PLUGIN_API_VERSION.")
    return int(match[1])


if __name__ == "__main__":
    sys.exit(main())
