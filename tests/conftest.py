"""Projects that many tests share are rendered and built once for all workers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

# The tools of this environment, as if it were activated.
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
import projects

PACKAGE = "my_triton_extension"

# Answers that differ from the defaults in every question.
ODD: dict[str, Any] = {
    "project_name": "zeta2-ops",
    "package": "zeta2_ops",
    "dialect": "z2",
    "description": 'Quotes "q", \\ backslash, {{ braces }}, $HOME, `tick`, """ and <b>',
    "author": 'José O\'Neil "Joe"',
    "email": "joe@example.org",
    "repository": "https://example.org/joe/zeta2-ops",
    "license": "Apache-2.0 WITH LLVM-exception",
    "components": ["dialect", "dsl"],
    "targets": ["nvidia"],
    "policy": "fallback",
    "ci": "gitlab",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-answers", action="store_true", help="build every pair of answers: 15 projects")


@pytest.fixture(scope="session", autouse=True)
def _toolchain() -> None:
    os.environ["TRITON_LLVM_MATCH"] = projects.match()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., projects.Project]:
    """Makes a project below a folder that all workers share, once."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base

    def make(name: str, build: Callable[[Path], projects.Project]) -> projects.Project:
        folder = base / f"shared {name} ü"  # a path with spaces and other letters
        with FileLock(base / f"{name}.lock"):
            done = folder / "done"
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                build(folder)
                done.touch()
        return projects.Project(folder / "project", folder / "environment" / "bin" / "python")

    return make


@pytest.fixture(scope="session")
def default(shared: Callable[..., projects.Project]) -> projects.Project:
    """The project of the default answers, installed. Read it; do not change it."""
    return shared("default", lambda folder: projects.project(folder))


@pytest.fixture(scope="session")
def odd(shared: Callable[..., projects.Project]) -> projects.Project:
    """The project of answers that all differ from the defaults, installed."""
    return shared("odd", lambda folder: projects.project(folder, **ODD))


@pytest.fixture
def rendered(tmp_path: Path) -> Path:
    """The project of the default answers, not built, to be changed at will."""
    return projects.render(tmp_path / "project")
