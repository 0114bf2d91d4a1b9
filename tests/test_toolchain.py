"""tools/toolchain.py against a loopback server, and every way it may fail."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import projects
import pytest

COMMIT = "b010a18d2b648cab83c83967ff26b8fde11acdc6"
NAME = "llvm-b010a18d-test-x64-1"

MEMBERS = {
    f"{NAME}/include/llvm/Config/abi-breaking.h": b"#define LLVM_ENABLE_ABI_BREAKING_CHECKS 1\n",
    f"{NAME}/include/llvm/Support/VCSRevision.h": f'#define LLVM_REVISION "{COMMIT}"\n'.encode(),
    f"{NAME}/include/mlir/IR/Big.h": os.urandom(3_000_000),
    f"{NAME}/bin/mlir-tblgen": b"#!/bin/sh\n",
    f"{NAME}/bin/opt": b"not needed",
    f"{NAME}/lib/libMLIR.a": os.urandom(1_000_000),
}


def archive(members: dict[str, bytes], *links: tuple[str, str]) -> bytes:
    """A .tar.gz of files, and of symbolic links as (name, target)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
        for name, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


@dataclass
class Store:
    """A server of one archive and its llvm-info.json, with faults to switch on."""

    data: bytes
    commit: str = COMMIT
    sha256: str | None = None
    break_after: list[int] = field(default_factory=list)  # bytes, for each answer in turn
    refuse: int = 0  # answers with 503 before the first good one
    missing: bool = False
    ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def info(self) -> bytes:
        checksum = self.sha256 or hashlib.sha256(self.data).hexdigest()
        return json.dumps({"llvm_hash": self.commit, "build_number": 1, "sha256sum": {"test-x64": checksum}}).encode()


class Handler(BaseHTTPRequestHandler):
    store: Store

    def do_GET(self) -> None:
        store = self.store
        wanted = self.headers.get("Range")
        store.requests.append((self.path, wanted))
        if self.path.endswith(".json"):
            self._answer(200, store.info())
        elif store.missing:
            self._answer(404, b"")
        elif store.refuse:
            store.refuse -= 1
            self._answer(503, b"")
        else:
            start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted and store.ranges else 0  # type: ignore[index]
            body = store.data[start:]
            cut = store.break_after.pop(0) if store.break_after else len(body)
            self._answer(206 if start else 200, body, body[:cut])
            if cut < len(body):
                self.connection.close()

    def _answer(self, status: int, body: bytes, sent: bytes | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if sent is None else sent)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[..., Store]]:
    servers = []

    def start(data: bytes, **options: Any) -> Store:
        store = Store(data, **options)
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"store": store}))
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        store.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return store

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class Tool:
    """The project's toolchain.py with a home and a store of the test's own."""

    def __init__(self, project: Path, home: Path) -> None:
        self.project, self.home = project, home
        self.home.mkdir()

    def run(self, *arguments: str, store: str = "http://127.0.0.1:9", **environment: str) -> Any:
        pins = self.project / "tools" / "triton.toml"
        text = pins.read_text()
        text = re.sub(r'archive = ".*"', f'archive = "{store}/{{name}}.tar.gz"', text)
        text = re.sub(r'info = ".*"', f'info = "{store}/{{source}}/llvm-info.json"', text)
        own = self.home.parent / "pins.toml"
        own.write_text(text)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("TRITON_", "LLVM_"))}
        base = {"TRITON_HOME": str(self.home), "TRITON_LLVM_SYSTEM_SUFFIX": "test-x64"}
        return subprocess.run(
            [sys.executable, "tools/toolchain.py", *arguments, "--pins", str(own)],
            cwd=self.project,
            env=clean | base | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def left(self) -> list[str]:
        """What is in the cache, without the lock."""
        cache = self.home / ".triton" / "llvm-plugin"
        return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock") if cache.exists() else []


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projects.render(tmp_path_factory.mktemp("toolchain") / "project")


@pytest.fixture
def tool(project: Path, tmp_path: Path) -> Tool:
    return Tool(project, tmp_path / "home")


def refused(done: Any, *says: str) -> None:
    """It failed, with one line of cause and remedy and no traceback."""
    assert done.returncode == 1, done.stdout
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for text in says:
        assert text in errors[0]


def test_fetch_unpacks_what_a_build_needs(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS))
    done = tool.run("fetch", store=store.url)
    assert done.returncode == 0, done.stderr
    assert "exact" in done.stdout
    prefix = tool.home / ".triton" / "llvm-plugin" / NAME
    assert (prefix / "include/mlir/IR/Big.h").read_bytes() == MEMBERS[f"{NAME}/include/mlir/IR/Big.h"]
    assert not (prefix / "lib/libMLIR.a").exists()
    assert not (prefix / "bin/opt").exists()
    assert f"{NAME}.tar.gz" in done.stderr  # the progress bar


def test_a_second_fetch_asks_nobody(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS))
    tool.run("fetch", store=store.url)
    before = len(store.requests)
    assert tool.run("fetch", store=store.url).returncode == 0
    assert len(store.requests) == before
    assert tool.run("verify").returncode == 0


def test_a_broken_connection_is_resumed(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS), break_after=[1_000_000, 500_000])
    assert tool.run("fetch", store=store.url).returncode == 0
    ranges = [wanted for _, wanted in store.requests if wanted]
    assert ranges == ["bytes=1000000-", "bytes=1500000-"]


def test_a_server_without_ranges_is_read_again(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS), break_after=[1_000_000], ranges=False)
    assert tool.run("fetch", store=store.url).returncode == 0


def test_a_busy_server_is_asked_again(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS), refuse=2)
    assert tool.run("fetch", store=store.url).returncode == 0


def test_a_connection_that_breaks_for_ever_is_an_error(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS), break_after=[1000] + [0] * 20)
    refused(tool.run("fetch", store=store.url), "broke off", "at byte 1000", "Try again later")
    assert tool.left() == []


def test_a_corrupted_archive_is_an_error(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS), sha256="0" * 64)
    refused(tool.run("fetch", store=store.url), "corrupt", "0" * 64, "nothing was kept")
    assert tool.left() == []


def test_a_truncated_archive_is_an_error(tool: Tool, serve: Callable[..., Store]) -> None:
    refused(tool.run("fetch", store=serve(archive(MEMBERS)[:-500_000]).url), "damaged", "nothing was kept")
    assert tool.left() == []


def test_something_else_than_an_archive_is_an_error(tool: Tool, serve: Callable[..., Store]) -> None:
    refused(tool.run("fetch", store=serve(b"<html>not found</html>").url), "not an archive")
    assert tool.left() == []


def test_an_archive_of_another_llvm_is_an_error(tool: Tool, serve: Callable[..., Store]) -> None:
    other = {name: data.replace(COMMIT.encode(), b"1" * 40) for name, data in MEMBERS.items()}
    refused(tool.run("fetch", store=serve(archive(other)).url), "1" * 40, COMMIT)
    assert tool.left() == []


def test_source_that_names_another_llvm_is_an_error(tool: Tool, serve: Callable[..., Store]) -> None:
    refused(tool.run("fetch", store=serve(archive(MEMBERS), commit="2" * 40).url), "2" * 40, COMMIT)
    assert tool.left() == []


@pytest.mark.parametrize("name", ["../../evil", f"{NAME}/../../evil", "/tmp/evil"])
def test_a_path_that_climbs_out_is_an_error(tool: Tool, serve: Callable[..., Store], name: str) -> None:
    refused(tool.run("fetch", store=serve(archive({name: b"x", **MEMBERS})).url), "unsafe", "Nothing was kept")
    assert tool.left() == []


def test_a_link_that_climbs_out_is_an_error(tool: Tool, serve: Callable[..., Store]) -> None:
    data = archive(MEMBERS, (f"{NAME}/include/llvm/link.h", "../../../../../etc/passwd"))
    refused(tool.run("fetch", store=serve(data).url), "unsafe", "Nothing was kept")
    assert tool.left() == []


def test_a_missing_archive_is_an_error(tool: Tool, serve: Callable[..., Store]) -> None:
    refused(tool.run("fetch", store=serve(b"", missing=True).url), "404", "TRITON_LLVM_MATCH=nearest")


def test_no_network_is_an_error(tool: Tool) -> None:
    refused(tool.run("fetch"), "Cannot reach", "LLVM_SYSPATH")


def test_the_offline_switch_is_honoured(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS))
    refused(tool.run("fetch", store=store.url, TRITON_OFFLINE_BUILD="1"), "TRITON_OFFLINE_BUILD")
    assert store.requests == []


def test_two_at_once_fetch_once(tool: Tool, serve: Callable[..., Store]) -> None:
    store = serve(archive(MEMBERS))
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: tool.run("fetch", store=store.url), range(2)))
    assert [done.returncode for done in both] == [0, 0]
    assert len([path for path, _ in store.requests if path.endswith(".tar.gz")]) == 1


def test_a_cache_that_cannot_be_written_is_an_error(tool: Tool, serve: Callable[..., Store], tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    store = serve(archive(MEMBERS))
    refused(tool.run("fetch", store=store.url, TRITON_HOME=str(blocked)), "Cannot write", "TRITON_HOME")


def make_llvm(prefix: Path, commit: str = COMMIT, checks: int = 1) -> Path:
    for name, data in MEMBERS.items():
        path = prefix / name.partition("/")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (prefix / "include/llvm/Config/abi-breaking.h").write_text(f"#define LLVM_ENABLE_ABI_BREAKING_CHECKS {checks}\n")
    (prefix / "include/llvm/Support/VCSRevision.h").write_text(f'#define LLVM_REVISION "{commit}"\n')
    return prefix


def test_the_llvm_that_is_named_comes_first(tool: Tool, tmp_path: Path) -> None:
    given = make_llvm(tmp_path / "given")
    make_llvm(tool.home / ".triton" / "llvm" / NAME)
    assert str(given) in tool.run("fetch", LLVM_SYSPATH=str(given)).stdout
    assert str(given) in tool.run("fetch", "--llvm-dir", str(given)).stdout


def test_tritons_own_cache_comes_second(tool: Tool) -> None:
    cached = make_llvm(tool.home / ".triton" / "llvm" / NAME)
    make_llvm(tool.home / ".triton" / "llvm-plugin" / NAME)
    assert str(cached) in tool.run("fetch").stdout


def test_another_commit_is_refused_under_exact(tool: Tool, tmp_path: Path) -> None:
    given = make_llvm(tmp_path / "given", commit="3" * 40)
    refused(tool.run("fetch", LLVM_SYSPATH=str(given)), "3" * 40, COMMIT)


def test_another_commit_is_marked_under_nearest(tool: Tool, tmp_path: Path) -> None:
    given = make_llvm(tmp_path / "given", commit="3" * 40)
    done = tool.run("fetch", "--json", LLVM_SYSPATH=str(given), TRITON_LLVM_MATCH="nearest")
    assert json.loads(done.stdout)["triton_llvm_matched"] == "nearest"
    assert "warning" in done.stderr


def test_headers_with_abi_checks_off_are_refused_under_exact(tool: Tool, tmp_path: Path) -> None:
    given = make_llvm(tmp_path / "given", checks=0)
    refused(tool.run("fetch", LLVM_SYSPATH=str(given)), "LLVM_ENABLE_ABI_BREAKING_CHECKS 0")


def test_a_folder_that_is_no_llvm_is_refused(tool: Tool, tmp_path: Path) -> None:
    refused(tool.run("fetch", LLVM_SYSPATH=str(tmp_path / "nothing")), "no include/llvm")


def test_an_unknown_match_is_refused(tool: Tool) -> None:
    refused(tool.run("show", TRITON_LLVM_MATCH="near"), "'near'", "exact")


def test_show_lists_the_places_in_order(tool: Tool) -> None:
    done = tool.run("show")
    assert done.returncode == 0
    places = [line.split(" /")[0].strip() for line in done.stdout.splitlines() if "llvm" in line and " /" in line]
    assert places == ["Triton's cache", "fetched before"]


def test_verify_without_a_toolchain_fails(tool: Tool) -> None:
    refused(tool.run("verify"), "toolchain.py fetch")


def fake_triton(folder: Path, version: str, headers: bool, library: bytes | None) -> Path:
    package = folder / "triton"
    (package / "_C").mkdir(parents=True)
    (package / "__init__.py").write_text(f"__version__ = '{version}'\n")
    if headers:
        (package / "include").mkdir()
    if library is not None:
        (package / "_C" / "libtriton.so").write_bytes(library)
    return folder


def test_triton_missing_is_an_error(tool: Tool, tmp_path: Path) -> None:
    refused(
        tool.run("fetch", PYTHONPATH=str(fake_triton(tmp_path / "site", "3.9.0", True, None))),
        "No Triton",
        "pip install",
    )


def test_a_triton_built_without_plugins_is_an_error(tool: Tool, tmp_path: Path) -> None:
    source = tmp_path / "empty.c"
    source.write_text("int nothing(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-Wl,--hash-style=gnu", source, "-o", tmp_path / "x.so"], check=True)
    site = fake_triton(tmp_path / "site", "3.9.0", True, (tmp_path / "x.so").read_bytes())
    refused(tool.run("fetch", PYTHONPATH=str(site)), "without plugins", "PyPI")


def test_a_damaged_libtriton_is_an_error(tool: Tool, tmp_path: Path) -> None:
    site = fake_triton(tmp_path / "site", "3.9.0", True, b"not a library")
    refused(tool.run("fetch", PYTHONPATH=str(site)), "not a library")


def test_nearest_needs_debian(tool: Tool, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    refused(tool.run("fetch", TRITON_LLVM_MATCH="nearest", PATH=str(empty)), "Debian", "LLVM_SYSPATH")
    shutil.rmtree(empty)
