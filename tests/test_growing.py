"""tools/add.py: what it adds is right at once, and what it refuses leaves the tree alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import projects
import pytest


def add(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "tools/add.py", *arguments], cwd=project, capture_output=True, text=True)


def tree(project: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes() for path in project.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


REFUSED = [
    (["pass", "Fold"], "'Fold' is no name"),
    (["pass", "1st"], "'1st' is no name"),
    (["pass", "two--dashes"], "is no name"),
    (["op", "naïve"], "is no name"),
    (["op", "x" * 41], "at most 40"),
    (["op", 'a"b'], "is no name"),
    (["pass", "class"], "a word of Python or C++"),
    (["op", "namespace"], "a word of Python or C++"),
    (["op", "abs"], "a word of Python or C++"),
    (["dsl", "tl"], "choose another name"),
    (["pass", "lower_approx_tanh"], "has lower_approx_tanh already"),
    (["pass", "rewrite_libdevice_tanh"], "has rewrite_libdevice_tanh already"),
    (["op", "approx_tanh"], "has approx_tanh already"),
    (["dsl", "approx_tanh"], "has approx_tanh already"),
    (["type", "approx_tanh"], "has approx_tanh already"),
    (["pass", "approx_tanh_op"], "would be ApproxTanhOp in C++, which MyExtensionOps.td has already"),
    (["pass", "precision_attr"], "would be PrecisionAttr in C++"),
    (["pass", "registration"], "exists already"),
    (["pass", "fold", "--level", "ptx"], "invalid choice: 'ptx'"),
    (["op", "fold", "--level", "ttir"], "--level is for a pass"),
    (["pass", "fold", "--form", "unary"], "--form is for an op"),
    (["kind", "fold"], "invalid choice: 'kind'"),
    (["pass"], "the following arguments are required: name"),
]


@pytest.mark.parametrize(
    ("arguments", "says"), REFUSED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_what_cannot_be_added_is_refused_and_nothing_is_written(
    rendered: Path, arguments: list[str], says: str
) -> None:
    before = tree(rendered)
    done = add(rendered, *arguments)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert tree(rendered) == before


@pytest.mark.parametrize("arguments", [["op", "square"], ["type", "pair"], ["dsl", "cube"]])
def test_what_needs_a_component_that_is_not_there_says_so(tmp_path: Path, arguments: list[str]) -> None:
    project = projects.render(tmp_path / "project", components=["pass"])
    done = add(project, *arguments)
    assert done.returncode == 1
    assert "docs/growing.md says how" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("src/my_triton_extension/passes.py", "PIPELINE = (\n", "passes.py is no Python: line 1"),
        ("src/my_triton_extension/passes.py", "PIPELINE = tuple(STEPS)\n", "no list or tuple to PIPELINE"),
        ("src/my_triton_extension/passes.py", "PIPELINE = ()\n", "bracket on a line of its own"),
        ("lib/MyExtension/Plugin.def", "", "no line that begins with '#undef PASS'"),
        ("include/MyExtension/MyExtensionPasses.td", "", "no line that begins with '#endif'"),
        ("tests/lowering", None, "Cannot write"),
    ],
)
def test_a_tree_that_does_not_fit_is_named_and_left_alone(
    rendered: Path, name: str, text: str | None, says: str
) -> None:
    path = rendered / name
    if text is None:  # a file where a folder should be, which root cannot write into either
        shutil.rmtree(path)
    path.write_text(text or "")
    before = tree(rendered)
    done = add(rendered, "pass", "fold_scale")
    assert done.returncode == 1
    assert says in done.stderr
    assert tree(rendered) == before


def test_two_at_once_are_both_added(rendered: Path) -> None:
    names = [f"rewrite{number}" for number in range(4)]
    running = [subprocess.Popen([sys.executable, "tools/add.py", "pass", name], cwd=rendered) for name in names]
    assert [process.wait() for process in running] == [0] * 4
    registered = (rendered / "lib/MyExtension/Plugin.def").read_text()
    assert all(f'PASS("my_extension_{name}", ' in registered for name in names)


@pytest.mark.parametrize("arguments", [["pass", "fold_scale"], ["op", "square"], ["type", "pair"], ["dsl", "cube"]])
def test_one_part_alone_leaves_a_project_formatted_and_lint_free(rendered: Path, arguments: list[str]) -> None:
    assert add(rendered, *arguments).returncode == 0
    for command in (["ruff", "format", "--no-cache", "--check", "."], ["ruff", "check", "--no-cache", "."]):
        done = subprocess.run(command, cwd=rendered, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_a_second_function_keeps_the_imports_as_they_are(rendered: Path) -> None:
    add(rendered, "op", "square")
    path = rendered / "src/my_triton_extension/dsl.py"
    lines = [line for line in path.read_text().splitlines() if line.startswith("from ")]
    add(rendered, "op", "gap", "--form", "binary")
    assert [line for line in path.read_text().splitlines() if line.startswith("from ")] == lines
