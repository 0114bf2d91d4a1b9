"""tools/new_triton.py tells what a release of Triton changes, and writes its pins."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from test_older_tritons import LLVM, stock, wheel

pytestmark = pytest.mark.xdist_group("older")


def run(project: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/new_triton.py", *map(str, arguments)]
    return subprocess.run(command, cwd=project, capture_output=True, text=True)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Triton 3.9.0 in a folder; its files are links, to be replaced at will."""
    folder = tmp_path / "new" / "triton"
    shutil.copytree(wheel("3.9.0"), folder, copy_function=lambda source, target: Path(target).symlink_to(source))
    return folder.parent


def test_what_changed_from_3_8_to_3_9(rendered: Path, new: Path) -> None:
    passes = rendered / "src/my_triton_extension/passes.py"
    passes.write_text(passes.read_text().replace('after="inliner"', 'after="plan_cta"').replace('"ttir"', '"ttgir"'))
    report = run(rendered, "compare", stock("triton==3.8.0"), new).stdout
    assert "# Triton 3.8.0 to 3.9.0" in report
    assert f"| LLVM | {LLVM['3.8.0']} | {LLVM['3.9.0']} |" in report
    assert "| loading | TRITON_PLUGIN_PATHS | extend_with |" in report
    looked_at, _, everything = report.partition("## Anchors")
    for target in ("cuda:80", "cuda:90", "cuda:100", "cuda:120"):
        line = f"passes.py, rewrite_libdevice_tanh: plan_cta ran 1 times in ttgir for {target}, and now 0 times"
        assert line in looked_at
    assert "hip:" not in looked_at  # AMD's pipeline had no plan_cta before
    assert "ttgir of cuda:90: new: assign_cga_layouts" in everything
    assert "ir.builder.extend_with" in everything


def test_nothing_changed_from_3_9_to_itself(rendered: Path, new: Path) -> None:
    report = run(rendered, "compare", new, new).stdout
    assert "nothing that could be seen from here" in report
    assert "- changed: none" in report
    assert "gone" not in report


def test_headers_that_the_project_includes_are_named(rendered: Path, new: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(new, other, symlinks=True)
    (other / "triton/include/triton/Dialect/Triton/IR/Dialect.h").unlink()
    changed = other / "triton/include/triton/Dialect/Triton/IR/TritonTypes.td"
    text = changed.read_text() + "// changed\n"
    changed.unlink()
    changed.write_text(text)
    report = run(rendered, "compare", new, other).stdout
    assert "TanhLowering.cpp:6: triton/Dialect/Triton/IR/Dialect.h is gone" in report
    assert "MyExtensionOps.td:7: triton/Dialect/Triton/IR/TritonTypes.td changed" in report
    assert "- gone: triton/Dialect/Triton/IR/Dialect.h" in report


def test_a_release_is_added_to_the_pins(rendered: Path) -> None:
    pins = rendered / "tools/triton.toml"
    text = pins.read_text()
    pins.write_text(text[: text.index('[releases."3.8.0"]')] if '"3.8.0"' in text else text)
    done = run(rendered, "add", stock("triton==3.8.0"), "--source", "c" * 40, "--llvm-build", "7")
    assert done.returncode == 0, done.stderr
    release = tomllib.loads(pins.read_text())["releases"]["3.8.0"]
    assert release == {"llvm_commit": LLVM["3.8.0"], "llvm_build": 7, "source": "c" * 40}
    again = run(rendered, "add", stock("triton==3.8.0"), "--source", "c" * 40, "--llvm-build", "7")
    assert again.returncode == 1
    assert "triton.toml has Triton 3.8.0 already" in again.stderr


def test_the_tag_and_the_build_are_asked_from_the_repository(rendered: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git = ["git", "-C", repository, "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a release"], check=True)
    subprocess.run([*git, "tag", "-m", "annotated", "v3.8.0"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    tool = rendered / "tools/new_triton.py"
    tool.write_text(tool.read_text().replace("https://github.com/triton-lang/triton", str(repository)))
    (tmp_path / "served" / commit).mkdir(parents=True)
    (tmp_path / "served" / commit / "llvm-info.json").write_text('{"build_number": 4}')
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "served")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pins, report = tmp_path / "pins.toml", tmp_path / "report.md"
        info = f'[store]\ninfo = "http://127.0.0.1:{server.server_port}/{{source}}/llvm-info.json"\n'
        pins.write_text(f"{info}[releases]\n")
        propose = ["propose", stock("triton==3.7.1"), stock("triton==3.8.0"), "--pins", pins, "--report", report]
        done = run(rendered, *propose)
        again = run(rendered, *propose)
        server.shutdown()
    assert done.stdout == "version=3.8.0\n"
    assert "# Triton 3.7.1 to 3.8.0" in report.read_text()
    assert (again.returncode, again.stdout) == (0, "")  # known by now: nothing to propose
    assert done.returncode == 0, done.stderr
    assert tomllib.loads(pins.read_text())["releases"]["3.8.0"]["source"] == commit
    assert tomllib.loads(pins.read_text())["releases"]["3.8.0"]["llvm_build"] == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare", "nowhere", "nowhere"], "pip install --target nowhere --no-deps triton"),
        (["add", "nowhere"], "nowhere holds no Triton that says which LLVM it has"),
        (["add"], "the following arguments are required: folder"),
    ],
)
def test_what_is_no_triton_is_an_error(rendered: Path, arguments: list[str], says: str) -> None:
    done = run(rendered, *arguments)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr
