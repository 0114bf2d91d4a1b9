"""The guide's links lead somewhere, and every page can be reached."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import generate
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
    """Does what a page says, where there is a template with versions, and nothing of it installed."""
    template = history(tmp_path / "template")
    python = projects.environment(tmp_path / "environment")
    commands = {"pip": "pip --disable-pip-version-check", "pytest": "pytest -p no:cacheprovider"}
    for name, command in commands.items():
        (python.parent / name).write_text(f'#!/bin/sh\nexec "{python}" -m {command} "$@"\n')
        (python.parent / name).chmod(0o755)
    environment = {
        "PATH": f"{python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TEMPLATE": str(template),
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say: none
        "PIP_NO_DEPS": "1",
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "user.name",
        "GIT_CONFIG_VALUE_0": "A",
        "GIT_CONFIG_KEY_1": "user.email",
        "GIT_CONFIG_VALUE_1": "a@example.org",
        "GIT_CONFIG_KEY_2": "init.defaultBranch",
        "GIT_CONFIG_VALUE_2": "main",
    }
    return lambda name: pages.run(projects.ROOT / "docs" / name, tmp_path, environment)


@pytest.mark.parametrize("page", ["growing.md", "updating.md"])
def test_what_a_page_about_a_project_shows_happens(reader: Callable[[str], None], tmp_path: Path, page: str) -> None:
    rendered(tmp_path / "template", tmp_path / "my-triton-extension")
    reader(page)


@pytest.mark.parametrize("page", ["start.md", "tutorial-pass.md", "tutorial-op.md"])
def test_what_a_page_shows_happens(reader: Callable[[str], None], page: str) -> None:
    reader(page)


@pytest.mark.xdist_group("default")
def test_pages_and_pictures_are_those_of_this_template(default: projects.Project) -> None:
    """`scripts/generate.py` would write what is there."""
    for name, text in generate.everything(default).items():
        assert (projects.ROOT / "docs" / name).read_text() == text, name


def normal(text: str) -> str:
    """Source text without what parts a message into string literals, and f-strings' fields as "..."."""
    text = re.sub(r'"\s*\n\s*f?r?"', "", text)
    text = re.sub(r"'\s*\n\s*f?r?'", "", text)
    return re.sub(r"\s+", " ", text)


def test_every_message_of_troubleshooting_is_in_the_code() -> None:
    sources = [projects.ROOT / "copier.yml"]
    for pattern in ("tools/*", "cmake/*", "native/*", "src/*/_runtime/*"):
        sources += [path for path in (projects.ROOT / "template").glob(pattern) if path.is_file()]
    code = normal("\n".join(path.read_text() for path in sources)).replace("\\n", "")
    entries = [block for block in pages.blocks(projects.ROOT / "docs/troubleshooting.md") if block.language == "text"]
    assert len(entries) >= 25
    for block in entries:
        message = " ".join(block.lines)
        if message.startswith("LLVM ERROR"):
            continue  # of MLIR, and no test can provoke it without ending the process
        for part in re.split(r"\.\.\.", message):
            words = part.strip(" ():;,.")
            assert words in code or not words, f"line {block.line}: {words!r}"


FORMATTERS = {
    "python": ["ruff", "format", "--stdin-filename", "block.py", "-"],
    "cpp": ["clang-format", "--style=LLVM"],
}


def test_code_in_the_docs_is_formatted() -> None:
    for page in PAGES:
        for block in pages.blocks(page):
            if block.language in FORMATTERS:
                text = "\n".join(block.lines) + "\n"
                done = subprocess.run(FORMATTERS[block.language], input=text, capture_output=True, text=True)
                assert done.stdout == text, f"{page.name}:{block.line}\n{done.stdout}{done.stderr}"


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    command = ["mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=projects.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/troubleshooting/index.html").exists()


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
    for page in [page for page in PAGES if not page.name.startswith("tutorial")]:  # those make their own
        for name in re.findall(r"`((?:tests|scripts|docs)/[\w/.-]+\.\w+)`", page.read_text()):
            here = (projects.ROOT / name).exists()
            there = any((projects.ROOT / "template").glob(f"{name}*"))
            assert here or there, f"{page.name}: {name}"
