# Owned by the project template; changed only by `copier update`.
"""Does the library fit the installed Triton? Asked before it is opened."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

from . import libtriton
from .policy import PACKAGE, PluginUnavailable

# What the build writes beside the library, and of which type.
RECORD = {
    "version": str,
    "triton": str,
    "llvm_commit": str,
    "llvm_match": str,
    "compiler": str,
    "plugin_api": int,
    "sha256": str,
    "self_test": str,
}

# The ELF header's machine numbers.
_MACHINES = {"x86_64": 62, "aarch64": 183}


class Check(NamedTuple):
    """One comparison: what was found, what is wanted, and what to do if they differ."""

    name: str
    found: str
    wanted: str
    remedy: str
    ok: bool

    def __str__(self) -> str:
        return f"{self.name}: found {self.found}, wanted {self.wanted}. {self.remedy}"


def library_path() -> Path:
    """Where the plugin's library is, whether or not it is there."""
    # Asked as for a module, so that an editable install rebuilds it first and says
    # in which of its folders it is.
    spec = importlib.util.find_spec(f"{PACKAGE}.lib{PACKAGE}")
    if spec is not None and spec.origin:
        return Path(spec.origin)
    return Path(__file__).resolve().parent.parent / f"lib{PACKAGE}.so"


def read_record(library: Path) -> dict[str, Any]:
    """The build record beside `library`.

    Raises PluginUnavailable if it is missing or damaged.
    """
    path = library.with_suffix(".json")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PluginUnavailable(f"The build record {path} cannot be read: {error}. Reinstall {PACKAGE}.") from error
    for key, kind in RECORD.items():
        value = record.get(key) if isinstance(record, dict) else None
        if not isinstance(value, kind):
            raise PluginUnavailable(
                f"The build record {path} is damaged: its {key!r} is {value!r}, not of type {kind.__name__}. "
                f"Reinstall {PACKAGE}."
            )
    return dict(record)


def checks(library: Path) -> list[Check]:
    """Every comparison for `library`, in the order in which they matter.

    Raises PluginUnavailable where the record cannot be read.
    """
    reinstall = f"Reinstall {PACKAGE}."
    found: list[Check] = []

    def add(name: str, value: object, wanted: object, remedy: str, ok: bool | None = None) -> None:
        found.append(Check(name, str(value), str(wanted), remedy, value == wanted if ok is None else ok))

    try:
        data = library.read_bytes()
    except OSError as error:
        add("library", error.strerror, library, f"Build it: pip install ., or {reinstall.lower()}", False)
        return found
    is_elf = data[:4] == b"\x7fELF" and len(data) > 64
    add("library", "an ELF file" if is_elf else f"{len(data)} bytes of something else", "an ELF file", reinstall)
    if not is_elf:
        return found
    # To open a file that ends too early would end the process with SIGBUS.
    wanted_size = _size(data)
    add("library's size", len(data), f"{wanted_size} or more", reinstall, len(data) >= wanted_size)
    machine = int.from_bytes(data[18:20], "little")
    wanted = _MACHINES.get(os.uname().machine, -1)
    add("library's machine", machine, wanted, f"Install a wheel for {os.uname().machine}.")

    record = read_record(library)
    add("library's sha256", hashlib.sha256(data).hexdigest(), record["sha256"], reinstall)
    add("self-test of the build", record["self_test"], "passed", "Build again and look at what the self-test says.")

    triton = libtriton.find()
    remedy = f"pip install 'triton~={'.'.join(record['triton'].split('.')[:2])}.0'."
    add("Triton", triton.version if triton else "none", record["triton"], remedy, bool(triton))
    if triton:
        line = record["triton"].split(".")[:2]
        add("Triton's line", ".".join(triton.version.split(".")[:2]), ".".join(line), remedy)
        commit = libtriton.llvm_commit(triton.library)
        add("LLVM in libtriton", commit, record["llvm_commit"], f"Build {PACKAGE} for this Triton, or {remedy}")
    return found


def _size(data: bytes) -> int:
    """How many bytes the segments of a 64-bit ELF file need, by its program header."""
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    end = offset + size * count
    if end > len(data):
        return int(end)
    for position in range(offset, end, size):
        file_offset, *_, file_size = struct.unpack_from("<QQQQ", data, position + 8)
        end = max(end, file_offset + file_size)
    return int(end)


def verify() -> tuple[Path, dict[str, Any]]:
    """The library and its build record, if everything fits.

    Raises PluginUnavailable with the first comparison that does not hold.
    """
    library = library_path()
    for check in checks(library):
        if not check.ok:
            raise PluginUnavailable(str(check))
    return library, read_record(library)
