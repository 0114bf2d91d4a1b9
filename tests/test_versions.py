"""The template's versions, and the Copiers that it works with."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import projects
import pytest
import yaml
from packaging.version import Version
from test_update import commit, git, history, tree

SETTINGS = yaml.safe_load((projects.ROOT / "copier.yml").read_text())


def changelog() -> dict[str, str]:
    """The entries of CHANGELOG.md by version, the newest first."""
    parts = re.split(r"^## (.+)\n", (projects.ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_versions_are_in_the_form_of_pep_440_and_in_order() -> None:
    versions = list(changelog())
    assert [str(Version(version)) for version in versions] == versions
    assert sorted(versions, key=Version, reverse=True) == versions


def test_every_entry_says_what_an_author_has_to_do() -> None:
    for version, entry in changelog().items():
        assert re.search(r"^- To do: .+", entry.strip().splitlines()[-1]), version


def test_the_changelog_the_project_and_the_note_of_an_update_agree() -> None:
    newest, entry = next(iter(changelog().items()))
    assert tomllib.loads((projects.ROOT / "pyproject.toml").read_text())["project"]["version"] == newest
    todo = entry.strip().splitlines()[-1].removeprefix("- To do: ")
    assert SETTINGS["authors_note"]["default"] == f"{newest}: {todo}"


def test_every_tag_is_a_version_of_the_changelog() -> None:
    assert set(git(projects.ROOT, "tag").split()) <= set(changelog())


def test_the_answers_file_names_the_version(tmp_path: Path) -> None:
    newest = next(iter(changelog()))
    template = tmp_path / "template"
    git(tmp_path, "clone", "-q", str(projects.ROOT), str(template))
    git(template, "tag", "-f", newest)
    subprocess.run(["copier", "copy", "-q", "--defaults", template, tmp_path / "project"], check=True)
    answers = yaml.safe_load((tmp_path / "project" / ".copier-answers.yml").read_text())
    assert answers["_commit"] in changelog()


@pytest.fixture(scope="module", params=["oldest", "newest"])
def copier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the oldest Copier that copier.yml names, or of the newest."""
    if request.param == "newest":
        return Path(sys.executable).parent / "copier"
    folder = tmp_path_factory.mktemp("copier")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", f"copier=={SETTINGS['_min_copier_version']}"], check=True)
    return folder / "bin" / "copier"


def test_copy_update_and_other_answers(copier: Path, tmp_path: Path) -> None:
    template, project = history(tmp_path / "template"), tmp_path / "project"

    def run(*arguments: str) -> None:
        done = subprocess.run([copier, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    run("copy", "-q", "--defaults", "--vcs-ref", "1.0.0", "-d", "components=[pass]", str(template), str(project))
    git(project, "init", "-q")
    passes = project / "src/my_triton_extension/passes.py"
    passes.write_text(passes.read_text() + "# the author's\n")
    commit(project, "rendered, and worked on")
    run("update", "-q", "--defaults", "--vcs-ref", "1.1.0", str(project))
    assert passes.read_text().endswith("# the author's\n")
    assert "# a fix in cmake" in (project / "cmake/TritonLLVM.cmake").read_text()
    commit(project, "updated")
    before = tree(project)
    for components in ("components=[pass, dialect, dsl]", "components=[pass]"):
        run("update", "-q", "--defaults", "--vcs-ref=:current:", "--exclude", "!*", "-d", components, str(project))
        assert (project / "lib/MyExtension/LowerApproxTanh.cpp").exists() == ("dialect" in components)
        commit(project, components)
    assert tree(project) == before
