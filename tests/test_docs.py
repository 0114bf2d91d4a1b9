"""The guide's links lead somewhere, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path

import projects

PAGES = [projects.ROOT / "README.md", *sorted((projects.ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[Path]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [(page.parent / target).resolve() for target in targets if "://" not in target]


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
