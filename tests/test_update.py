"""`copier update` brings the template's fixes and leaves the author's files alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import copier
import projects
import pytest
import yaml
from projects import Project


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)


ANSWERS = ".copier-answers.yml"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    return history(tmp_path / "template")


def history(path: Path) -> Path:
    """The template as a repository with three versions.

    1.1.0 changes files of both owners, replaces one question by another and offers
    other choices; 2.0.0 adds files of both and moves a folder.
    """
    path.mkdir()
    caches = shutil.ignore_patterns("__pycache__", ".*_cache")
    shutil.copytree(projects.ROOT / "template", path / "template", ignore=caches)
    shutil.copy(projects.ROOT / "copier.yml", path)
    questions = (path / "copier.yml").read_text()
    flavour = "flavour:\n  type: str\n  choices: [{}]\n  default: {}\n\n"
    old = "dropped:\n  type: str\n  default: a question that goes\n"
    (path / "copier.yml").write_text(f"{questions}\n{flavour.format('sweet, sour', 'sweet')}{old}")
    (path / "template/tools/extra").mkdir()
    (path / "template/tools/extra/settings.toml.jinja").write_text(f'{OWNED}flavour = "{{{{ flavour }}}}"\n')
    git(path, "init", "-q")
    release(path, "1.0.0")
    new = "added:\n  type: int\n  default: 3\n"
    (path / "copier.yml").write_text(f"{questions}\n{flavour.format('sweet, bitter', 'bitter')}{new}")
    append(path / "template/cmake/TritonLLVM.cmake", "# a fix in cmake\n")
    append(path / "template/lib/{{ cpp_name }}/TanhLowering.cpp.jinja", "// another sample\n")
    append(path / "template/README.md.jinja", "Another sentence.\n")
    release(path, "1.1.0")
    append(path / "template/src/{{ package }}/_runtime/policy.py.jinja", "\n\n# a fix in the runtime\n")
    (path / "template/lib/{{ cpp_name }}/New.cpp").write_text("// a new sample\n")
    (path / "template/tools/new.py").write_text(OWNED)
    (path / "template/tools/extra").rename(path / "template/tools/more")
    release(path, "2.0.0")
    return path


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def release(path: Path, version: str) -> None:
    commit(path, version)
    git(path, "tag", version)


OWNED = "# Owned by the project template; changed only by `copier update`.\n"


def rendered(template: Path, path: Path, **answers: Any) -> Path:
    """A project at 1.0.0, under git."""
    copier.run_copy(str(template), path, data=answers, vcs_ref="1.0.0", defaults=True, quiet=True)
    git(path, "init", "-q")
    commit(path, "rendered")
    return path


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Path:
    """A project rendered at 1.0.0, in which its author has worked since."""
    path = rendered(template, tmp_path / "project")
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


def update(path: Path, version: str | copier.VcsRef = copier.VcsRef.CURRENT, **options: Any) -> None:
    copier.run_update(path, vcs_ref=version, defaults=True, overwrite=True, quiet=True, **options)
    if git(path, "status", "--porcelain"):
        commit(path, f"update to {version}")


def answers(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((path / ANSWERS).read_text()))


TEMPLATES = (
    "cmake/",
    "tools/",
    "native/",
    "tests/support/",
    ".clang",
    ".pre-commit",
    ".gersemirc",
    ".copier-answers",
)


def is_templates(name: str) -> bool:
    return name.startswith((*TEMPLATES, ".github/")) or "/_runtime/" in name or name.endswith((".pth", ".pyi"))


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


def test_questions_come_go_and_offer_other_choices(project: Path) -> None:
    update(project, "1.1.0")
    assert {"added": 3, "flavour": "sweet"}.items() <= answers(project).items()
    assert "dropped" not in answers(project)


def test_an_answer_that_is_no_longer_offered_becomes_the_default(template: Path, tmp_path: Path) -> None:
    project = rendered(template, tmp_path / "project", flavour="sour")
    update(project, "1.1.0")
    assert answers(project)["flavour"] == "bitter"
    assert 'flavour = "bitter"' in (project / "tools/extra/settings.toml").read_text()


def test_a_folder_of_the_templates_moves(project: Path) -> None:
    update(project, "2.0.0")
    assert (project / "tools/more/settings.toml").exists()
    assert not (project / "tools/extra/settings.toml").exists()


def test_recopy_restores_the_templates_files_and_keeps_the_authors(project: Path) -> None:
    append(project / "cmake/TritonLLVM.cmake", "# the author's\n")
    commit(project, "change a file of the template's")
    before = tree(project)
    copier.run_recopy(project, vcs_ref="1.0.0", defaults=True, overwrite=True, quiet=True)
    after = tree(project)
    assert b"# the author's" not in after["cmake/TritonLLVM.cmake"]
    assert {name for name in before if not is_templates(name) and before[name] != after[name]} == set()
    assert {"tests/lowering/fold.mlir", "src/my_triton_extension/dsl.py"} <= after.keys() - before.keys()


def test_an_update_says_what_an_author_may_want_to_look_at(project: Path) -> None:
    done = subprocess.run(
        ["copier", "update", "--defaults", "--vcs-ref", "2.0.0"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    note = yaml.safe_load((projects.ROOT / "copier.yml").read_text())["authors_note"]["default"]
    assert f"Your own files are as you left them. {note}" in done.stderr + done.stdout


def test_the_whole_template_may_be_merged_when_asked_for(project: Path) -> None:
    update(project, "2.0.0", exclude=["!*"])
    assert (project / "lib/MyExtension/New.cpp").exists()
    assert "Another sentence." in (project / "README.md").read_text()
    assert "The author's words." in (project / "README.md").read_text()
    assert not (project / "tests/lowering/fold.mlir").exists()


def test_a_component_added_later_and_taken_away_again(template: Path, tmp_path: Path) -> None:
    project = rendered(template, tmp_path / "project", components=["pass"])
    append(project / "src/my_triton_extension/passes.py", "# the author's\n")
    commit(project, "the author's work")
    before = tree(project)
    update(project, exclude=["!*"], data={"components": ["pass", "dialect", "dsl"]})
    whole = projects.render(tmp_path / "whole")
    added = tree(project)
    assert added.keys() - {"tools/extra/settings.toml"} == {
        str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()
    }
    assert added["src/my_triton_extension/passes.py"].endswith(b"# the author's\n")
    assert b"lower_approx_tanh" in added["src/my_triton_extension/passes.py"]
    update(project, exclude=["!*"], data={"components": ["pass"]})
    assert tree(project) == before


@pytest.fixture(scope="module")
def grown(shared: Callable[..., Project]) -> Project:
    """A project after a year: given a dialect and grown at 1.0.0, updated, grown, updated."""

    def build(folder: Path) -> Project:
        project = rendered(history(folder / "template"), folder / "project", components=["pass"], targets=["nvidia"])
        add = [sys.executable, "tools/add.py"]
        # The answers before the passes: both add to the end of the pipeline.
        update(project, exclude=["!*"], data={"components": ["pass", "dialect", "dsl"], "targets": ["nvidia", "amd"]})
        for number, level in enumerate(["ttir", "ttgir", "llvm"] * 3 + ["ttir"], 1):
            subprocess.run([*add, "pass", f"rewrite{number}", "--level", level], cwd=project, check=True)
        commit(project, "ten passes")
        update(project, "1.1.0")
        for number, form in enumerate(["unary", "binary", "attribute", "results"] * 2 + ["unary", "results"], 1):
            subprocess.run([*add, "op", f"op{number}", "--form", form], cwd=project, check=True)
        for kind, name in (("type", "pair"), ("type", "box"), ("dsl", "cube")):
            subprocess.run([*add, kind, name], cwd=project, check=True)
        commit(project, "ten ops, two types and a function")
        update(project, "2.0.0")
        made = Project(project, projects.environment(folder / "environment"))
        made.install()
        return made

    return shared("grown", build)


@pytest.mark.xdist_group("grown")
def test_a_grown_and_updated_project_passes_its_own_tests(grown: Project) -> None:
    output = grown.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider").stdout
    assert int(re.search(r"(\d+) passed", output)[1]) > 250  # type: ignore[index]


@pytest.mark.xdist_group("grown")
def test_a_grown_project_is_formatted(grown: Project) -> None:
    grown.run("ruff", "format", "--no-cache", "--check", ".")
    grown.run("ruff", "check", "--no-cache", ".")
    sources = [path for path in grown.path.glob("*/*/*") if path.suffix in (".cpp", ".h")]
    grown.run("clang-format", "--dry-run", "--Werror", *sources)
    grown.run("mypy")
