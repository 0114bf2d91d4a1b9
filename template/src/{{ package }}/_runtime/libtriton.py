# Owned by the project template; changed only by `copier update`.
"""The installed Triton, looked at without importing it."""

from __future__ import annotations

import importlib.machinery
import json
import mmap
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

_LLVM = re.compile(rb"LLVM version [\w.]+ \(([0-9a-f]{40})\)")


# NamedTuples here and in loading: a dataclass takes a millisecond to make.
class Triton(NamedTuple):
    """An installed Triton: its version, its package's folder, its library."""

    version: str
    directory: Path
    library: Path

    @property
    def include(self) -> Path:
        """Where the wheel keeps its C++ headers (3.9 and later)."""
        return self.directory / "include"

    @property
    def reads_paths(self) -> bool:
        """Whether it loads plugins from TRITON_PLUGIN_PATHS, as 3.7 and 3.8 do.

        Wheels that can be extended at any time bring their headers too.
        """
        return not self.include.is_dir()


def find() -> Triton | None:
    """The Triton that `import triton` would take, or None.

    A folder named triton without a compiled library is not one.
    """
    # Not importlib.util.find_spec: it would ask sys.modules, and other finders.
    spec = importlib.machinery.PathFinder.find_spec("triton", sys.path)
    if spec is None or not spec.submodule_search_locations:
        return None
    directory = Path(next(iter(spec.submodule_search_locations)))
    library = directory / "_C" / "libtriton.so"
    if not library.is_file():
        return None
    return Triton(_version(directory), directory, library)


def _version(directory: Path) -> str:
    # Not the distribution's metadata: they take ten times as long to read.
    text = (directory / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r"^__version__ = ['\"]([^'\"]+)", text, re.MULTILINE)
    return match[1] if match else "unknown"


def llvm_commit(library: Path) -> str | None:
    """The commit of the LLVM inside `library`, 40 hex digits, or None.

    Searching half a gigabyte takes tens of milliseconds, so the answer is kept
    in the user's cache folder for as long as the file is the same.
    """
    status = library.stat()
    identity = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
    cache = cache_directory() / "llvm-commits.json"
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
        if isinstance(known[identity], str):
            return str(known[identity])
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    commit = _search(library)
    if commit:
        _write_atomically(cache, json.dumps({identity: commit}))
    return commit


def _search(library: Path) -> str | None:
    with library.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            position = data.find(b"LLVM version ")
            while position >= 0:
                if match := _LLVM.match(data[position : position + 100]):
                    return match[1].decode()
                position = data.find(b"LLVM version ", position + 1)
    return None


def cache_directory() -> Path:
    """Where small facts are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "triton-plugins"


def _write_atomically(path: Path, text: str) -> None:
    """Writes a cache: a folder that cannot be written is no reason to fail."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except OSError:
        pass
