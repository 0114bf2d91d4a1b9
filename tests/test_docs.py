"""The guide's links lead somewhere, and every page can be reached."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pages
import projects
import pytest
from test_update import history, rendered

PAGES = [projects.ROOT / "README.md", *sorted((projects.ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[Path]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [(page.parent / target).resolve() for target in targets if "://" not in target]


@pytest.fixture
def reader(tmp_path: Path) -> Callable[[str], None]:
    """Does what a page says, in a folder with a rendered project under git."""
    rendered(history(tmp_path / "template"), tmp_path / "my-triton-extension")
    python = projects.environment(tmp_path / "environment")
    pip = python.parent / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{python}" -m pip --disable-pip-version-check "$@"\n')
    pip.chmod(0o755)
    for name in ("pytest", "python3"):
        (python.parent / name).unlink(missing_ok=True)
    (python.parent / "pytest").write_text(f'#!/bin/sh\nexec "{python}" -m pytest -p no:cacheprovider "$@"\n')
    (python.parent / "pytest").chmod(0o755)
    environment = {
        "PATH": f"{python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say: none
        "PIP_NO_DEPS": "1",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "user.name",
        "GIT_CONFIG_VALUE_0": "A",
        "GIT_CONFIG_KEY_1": "user.email",
        "GIT_CONFIG_VALUE_1": "a@example.org",
    }
    return lambda name: pages.run(projects.ROOT / "docs" / name, tmp_path, environment)


@pytest.mark.parametrize("page", ["growing.md", "updating.md"])
def test_what_a_page_shows_happens(reader: Callable[[str], None], page: str) -> None:
    reader(page)


def test_no_link_is_dead() -> None:
    dead = [f"{page.name}: {target}" for page in PAGES for target in links(page) if not target.exists()]
    assert dead == []


def test_no_page_is_an_orphan() -> None:
    reached, todo = set(), [projects.ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in reached:
            reached.add(page)
            todo += [target for target in links(page) if target.suffix == ".md"]
    assert set(PAGES) - reached == set()


def test_the_readme_has_the_two_commands() -> None:
    text = (projects.ROOT / "README.md").read_text()
    assert re.findall(r"^\$ make (\w+)$", text, re.MULTILINE) == ["demo", "test"]


def test_files_that_the_docs_name_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:tests|scripts|docs)/[\w/.-]+\.\w+)`", page.read_text()):
            here = (projects.ROOT / name).exists()
            there = any((projects.ROOT / "template").glob(f"{name}*"))
            assert here or there, f"{page.name}: {name}"
