"""`copier update` brings the template's fixes and leaves the author's files alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import copier
import projects
import pytest


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """The template as a repository with the tags 1.0.0, 1.1.0 and 2.0.0."""
    path = tmp_path / "template"
    path.mkdir()
    caches = shutil.ignore_patterns("__pycache__", ".*_cache")
    shutil.copytree(projects.ROOT / "template", path / "template", ignore=caches)
    shutil.copy(projects.ROOT / "copier.yml", path)
    git(path, "init", "-q")
    commit(path, "1.0.0")
    git(path, "tag", "1.0.0")
    append(path / "template/cmake/TritonLLVM.cmake", "# a fix in cmake\n")
    append(path / "template/lib/{{ cpp_name }}/TanhLowering.cpp.jinja", "// another sample\n")
    append(path / "template/README.md.jinja", "Another sentence.\n")
    commit(path, "1.1.0")
    git(path, "tag", "1.1.0")
    append(path / "template/src/{{ package }}/_runtime/policy.py.jinja", "# a fix in the runtime\n")
    (path / "template/lib/{{ cpp_name }}/New.cpp").write_text("// a new sample\n")
    (path / "template/tools/new.py").write_text("# Owned by the project template; changed only by `copier update`.\n")
    commit(path, "2.0.0")
    git(path, "tag", "2.0.0")
    return path


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Path:
    """A project rendered at 1.0.0, in which its author has worked since."""
    path = tmp_path / "project"
    copier.run_copy(str(template), path, vcs_ref="1.0.0", defaults=True, quiet=True)
    git(path, "init", "-q")
    commit(path, "rendered")
    append(path / "lib/MyExtension/LowerApproxTanh.cpp", "// the author's\n")
    append(path / "README.md", "The author's words.\n")
    append(path / "src/my_triton_extension/passes.py", "# the author's\n")
    (path / "lib/MyExtension/MyPass.cpp").write_text("// the author's own\n")
    (path / "tests/lowering/fold.mlir").unlink()
    (path / "src/my_triton_extension/dsl.py").rename(path / "src/my_triton_extension/functions.py")
    commit(path, "the author's work")
    return path


def tree(path: Path) -> dict[str, bytes]:
    names = git(path, "ls-files", "-co", "--exclude-standard").splitlines()
    return {name: (path / name).read_bytes() for name in names if (path / name).is_file()}


def update(path: Path, version: str) -> None:
    copier.run_update(path, vcs_ref=version, defaults=True, overwrite=True, quiet=True)
    if git(path, "status", "--porcelain"):
        commit(path, f"update to {version}")


TEMPLATES = (
    "cmake/",
    "tools/",
    "native/",
    "tests/support/",
    ".clang-format",
    ".pre-commit",
    ".gersemirc",
    ".copier-answers",
)


def is_templates(name: str) -> bool:
    return name.startswith((*TEMPLATES, ".github/")) or "/_runtime/" in name or name.endswith(".pth")


def test_fixes_arrive_and_the_authors_work_is_left_alone(project: Path) -> None:
    before = tree(project)
    update(project, "2.0.0")
    after = tree(project)
    assert b"# a fix in cmake" in after["cmake/TritonLLVM.cmake"]
    assert b"# a fix in the runtime" in after["src/my_triton_extension/_runtime/policy.py"]
    assert "tools/new.py" in after
    authors = {name for name in before if not is_templates(name)}
    assert {name for name in after if not is_templates(name)} == authors
    assert {name for name in authors if before[name] != after[name]} == set()
    assert not [name for name in after if name.endswith((".rej", ".orig"))]


def test_every_version_or_the_newest_at_once_give_the_same(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(project, other)
    update(project, "2.0.0")
    update(other, "1.1.0")
    update(other, "2.0.0")
    assert tree(project) == tree(other)


def test_a_second_update_changes_nothing(project: Path) -> None:
    update(project, "2.0.0")
    before = tree(project)
    update(project, "2.0.0")
    assert tree(project) == before


def test_a_changed_file_of_the_templates_is_a_visible_conflict(project: Path) -> None:
    path = project / "cmake/TritonLLVM.cmake"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-1], "# the author's own end\n"]))
    commit(project, "change a file of the template's")
    copier.run_update(project, vcs_ref="2.0.0", defaults=True, overwrite=True, quiet=True)
    text = path.read_text()
    assert "# the author's own end" in text
    assert "<<<<<<<" in text
    assert "# a fix in cmake" in text
