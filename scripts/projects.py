"""Rendered projects, built and installed in environments of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import copier
import urllib3

ROOT = Path(__file__).resolve().parent.parent
STORE = "https://oaitriton.blob.core.windows.net/"


def match() -> str:
    """`exact`, or `nearest` where Triton's store of LLVM builds cannot be reached."""
    if chosen := os.environ.get("TRITON_LLVM_MATCH"):
        return chosen
    try:
        urllib3.request("HEAD", STORE, timeout=5, retries=False)
    except urllib3.exceptions.HTTPError:
        return "nearest"
    return "exact"


@dataclass(frozen=True)
class Project:
    """A rendered project, and the interpreter that it is installed for."""

    path: Path
    python: Path

    @property
    def package(self) -> str:
        return next((self.path / "src").glob("*/__init__.py")).parent.name

    def run(self, *command: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command with the project's interpreter first on PATH."""
        path = f"{self.python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path} | options.pop("env", {})
        options = {"cwd": self.path, "capture_output": True, "text": True, "timeout": 800} | options
        done = subprocess.run([str(part) for part in command], env=environment, **options)
        if check and done.returncode:
            raise AssertionError(
                f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        return done

    def install(self, *options: str, **run: Any) -> subprocess.CompletedProcess[str]:
        """`pip install .` with the build requirements of this environment."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "install"]
        return self.run(*pip, "--quiet", "--no-deps", "--no-build-isolation", *options, self.path, **run)


def render(path: Path, **answers: Any) -> Path:
    """Renders the working tree's template, with the defaults for what is not answered."""
    # From a copy that is no repository, so that what is not committed counts.
    with tempfile.TemporaryDirectory() as copy:
        caches = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(ROOT / "template", Path(copy) / "template", ignore=caches)
        shutil.copy(ROOT / "copier.yml", copy)
        copier.run_copy(copy, path, data=answers, defaults=True, quiet=True, overwrite=True)
    return path


def environment(path: Path) -> Path:
    """A virtual environment that sees the packages of this one; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    python = path / "bin" / "python"
    purelib = sysconfig.get_path("purelib", vars={"base": str(path)})
    # addsitedir, not a plain path: packages of the outer one have .pth files too.
    Path(purelib, "outer.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return python


def project(folder: Path, **answers: Any) -> Project:
    """A project, rendered and installed below `folder`."""
    made = Project(render(folder / "project", **answers), environment(folder / "environment"))
    made.install()
    return made
