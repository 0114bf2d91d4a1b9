# Owned by the project template; changed only by `copier update`.
"""Triton's C++ headers out of its source, for wheels that bring none (before 3.9).

They are laid out as the later wheels have them: the .h and .td files, Version.h, and
what mlir-tblgen makes of the .td files by the lines of Triton's own CMake files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import filelock
import tqdm

# Without these no plugin builds.
_NEEDED = [
    "triton/Tools/PluginUtils.h",
    "triton/Dialect/Triton/IR/Dialect.h",
    "triton/Dialect/Triton/IR/Ops.h.inc",
    "triton/Dialect/TritonGPU/IR/Dialect.h",
    "triton/Dialect/TritonGPU/IR/Ops.h.inc",
    "python/src/ir.h",
]


class HeadersError(Exception):
    """Why there are no headers, and what to do."""


@dataclass(frozen=True)
class Source:
    """Triton's source at a release: the version, the repository, the commit of the tag."""

    version: str
    repository: str
    commit: str


def find_or_stage(source: Source, llvm: Path, cache: Path, offline: bool) -> Path:
    """The folder of headers for `source`, made in `cache` if it is not there.

    TRITON_SOURCE_DIR names a checkout to take in place of fetching one. `llvm` is
    the LLVM whose mlir-tblgen makes the .h.inc files.
    """
    given = os.environ.get("TRITON_SOURCE_DIR")
    cache.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(cache / f"headers-{source.version}.lock"):
        if given:
            tree = Path(given)
            _check_commit(tree, source)
            return _stage(tree, _digest(tree), source, llvm, cache)
        ready = _place(cache, source, source.commit, llvm)
        if ready.is_dir():
            return ready
        if offline:
            raise HeadersError(
                f"Triton {source.version} needs headers from its source, and TRITON_OFFLINE_BUILD is set: unset it, or name a "
                f"checkout of {source.commit} with TRITON_SOURCE_DIR."
            )
        with tempfile.TemporaryDirectory(dir=cache, prefix="source.") as scratch:
            _fetch(source, Path(scratch))
            return _stage(Path(scratch), source.commit, source, llvm, cache)


def _place(cache: Path, source: Source, content: str, llvm: Path) -> Path:
    """Where the headers made of `content` with one mlir-tblgen are kept."""
    tool = hashlib.sha256(str(llvm.resolve()).encode()).hexdigest()
    return cache / f"headers-{source.version}-{content[:12]}-{tool[:8]}"


def _digest(tree: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([*tree.glob("include/**/*"), *tree.glob("python/src/*.h")]):
        if path.is_file():
            digest.update(str(path.relative_to(tree)).encode() + path.read_bytes())
    return digest.hexdigest()


def _check_commit(tree: Path, source: Source) -> None:
    """Raises HeadersError for a checkout of something else; an unpacked archive is believed."""
    if not (tree / "include" / "triton").is_dir():
        raise HeadersError(f"TRITON_SOURCE_DIR is {tree}, which has no include/triton: name a checkout of Triton.")
    if (tree / ".git").exists():
        done = subprocess.run(["git", "-C", tree, "rev-parse", "HEAD"], capture_output=True, text=True)
        found = done.stdout.strip()
        if re.fullmatch("[0-9a-f]{40}", source.commit) and found != source.commit:
            raise HeadersError(
                f"TRITON_SOURCE_DIR is {tree}, which is at {found or 'no commit'}; Triton {source.version} is {source.commit}: "
                f"git -C {tree} checkout {source.commit}."
            )


def _fetch(source: Source, folder: Path) -> None:
    print(f"Fetching Triton {source.version} ({source.commit}) from {source.repository}", file=sys.stderr)
    steps = [
        ["init", "--quiet"],
        # The hash of the commit vouches for what comes.
        ["fetch", "--progress", "--depth", "1", source.repository, source.commit],
        ["checkout", "--quiet", "FETCH_HEAD"],
    ]
    for step in steps:
        done = subprocess.run(
            ["git", "-C", folder, *step], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise HeadersError(
                f"Cannot fetch {source.commit} from {source.repository}: {said[-1] if said else 'git failed'}. Check the network, "
                "or name a checkout with TRITON_SOURCE_DIR."
            )


def _stage(tree: Path, content: str, source: Source, llvm: Path, cache: Path) -> Path:
    ready = _place(cache, source, content, llvm)
    if ready.is_dir():
        return ready
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{ready.name}.") as scratch:
        stage = Path(scratch) / ready.name
        for path in tree.glob("include/**/*"):
            if path.suffix in (".h", ".hpp", ".td"):
                _copy(path, stage / path.relative_to(tree / "include"))
        for path in tree.glob("python/src/*.h"):
            _copy(path, stage / path.relative_to(tree))
        if not (stage / "triton" / "Version.h").exists():
            text = f'#pragma once\n\n#define TRITON_VERSION "{source.version}"\n'
            (stage / "triton" / "Version.h").write_text(text)
        steps = list(_tablegen(tree / "include"))
        with ThreadPoolExecutor() as pool:
            runs = pool.map(lambda step: _generate(*step, stage, llvm), steps)
            list(tqdm.tqdm(runs, total=len(steps), desc="mlir-tblgen", file=sys.stderr))
        if missing := [name for name in _NEEDED if not (stage / name).is_file()]:
            raise HeadersError(
                f"The source of Triton {source.version} in {tree} gives no {', '.join(missing)}: it is not whole, or laid out in "
                "another way than this version."
            )
        stage.rename(ready)
    return ready


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _tablegen(include: Path) -> Iterator[tuple[Path, str, str, list[str]]]:
    """The mlir_tablegen lines for headers: folder, .td file, output, options."""
    for path in sorted(include.rglob("CMakeLists.txt")):
        definitions = None
        for line in path.read_text().splitlines():
            if match := re.match(r"\s*set\(LLVM_TARGET_DEFINITIONS\s+(\S+)\)", line):
                definitions = match[1]
            elif match := re.match(r"\s*mlir_tablegen\((\S+\.h\.inc)\s+(.+)\)", line):
                if definitions is None:
                    raise HeadersError(f"{path} makes {match[1]} of no .td file: it is not whole.")
                yield path.parent.relative_to(include), definitions, match[1], match[2].split()


def _generate(folder: Path, definitions: str, output: str, options: list[str], stage: Path, llvm: Path) -> None:
    source = stage / folder / definitions
    if not source.is_file():
        raise HeadersError(f"Triton's source has no include/{folder / definitions}, of which {output} is made.")
    includes = [f"-I{path}" for path in (stage, source.parent, llvm / "include")]
    command = [llvm / "bin" / "mlir-tblgen", *options, source, *includes, "-o", stage / folder / output]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise HeadersError(f"mlir-tblgen cannot make {folder / output}: {done.stderr.strip()[:1000]}")
