"""Every set of answers makes files that parse, are formatted and mean the same."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import projects
import pytest
import yaml
from conftest import ODD
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

COMPONENTS = [["pass"], ["dialect"], ["pass", "dialect"], ["dialect", "dsl"], ["pass", "dialect", "dsl"]]
TARGETS = [["nvidia"], ["amd"], ["nvidia", "amd"]]
OTHERS = itertools.cycle(
    [
        {"policy": "error", "ci": "github", "license": "MIT", "dialect": "a", "package": "a", "project_name": "a"},
        {
            "policy": "fallback",
            "ci": "gitlab",
            "license": "BSD-3-Clause",
            "project_name": "x" * 40,
            "package": "y" * 40,
            "dialect": "z" * 24,
        },
        {"policy": "error", "ci": "none", "license": "Apache-2.0", "triton": "3.8"},
        {"license": "Apache-2.0 WITH LLVM-exception", "triton": "3.7", "package": "zz_top", "dialect": "t_u_v_w_x_y_z"},
    ]
)
SETS = [{"components": c, "targets": t} | next(OTHERS) for c, t in itertools.product(COMPONENTS, TARGETS)] + [ODD, {}]


def name_of(answers: dict[str, Any]) -> str:
    return "-".join(str(value)[:24] for key, value in answers.items() if key in ("components", "targets", "dialect"))


@pytest.fixture(scope="module", params=SETS, ids=name_of)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projects.render(tmp_path_factory.mktemp("rendered") / "project", **request.param)


def files(project: Path, *suffixes: str) -> list[Path]:
    paths = (path for path in sorted(project.rglob("*")) if "__pycache__" not in path.parts)
    return [path for path in paths if path.is_file() and path.name.endswith(suffixes)]


def parse(project: Path) -> None:
    for path in files(project, ".py"):
        ast.parse(path.read_text())
    for path in files(project, ".toml"):
        tomllib.loads(path.read_text())
    for path in files(project, ".yml", ".yaml"):
        yaml.safe_load(path.read_text())
    for path in files(project, ".json"):
        json.loads(path.read_text())


def test_every_file_parses(project: Path) -> None:
    parse(project)


def test_nothing_is_left_of_templating(project: Path) -> None:
    for path in files(project, ""):
        text = path.read_text()
        assert path.suffix == ".j2" or not re.search(
            r"{%-? *(if|el|end|set|for)|{{ *(project_name|package|dialect|cpp_name|env_prefix)", text
        ), path
        assert not re.search(r"\n\n\n\n", text), path
        assert not text or (text.endswith("\n") and not text.endswith("\n\n")), path
    assert not files(project, ".jinja")


def test_python_is_formatted_and_lint_free(project: Path) -> None:
    subprocess.run(["ruff", "format", "--no-cache", "--check", project], check=True, capture_output=True)
    done = subprocess.run(["ruff", "check", "--no-cache", project], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_cpp_is_formatted(project: Path) -> None:
    sources = files(project, ".cpp", ".h")
    done = subprocess.run(
        ["clang-format", "--dry-run", "--Werror", *sources], capture_output=True, text=True, cwd=project
    )
    assert done.returncode == 0, done.stderr


def test_cmake_is_formatted(project: Path) -> None:
    done = subprocess.run(
        ["gersemi", "--check", "cmake", "CMakeLists.txt"], capture_output=True, text=True, cwd=project
    )
    assert done.returncode == 0, done.stderr


def test_tablegen_parses(project: Path) -> None:
    tablegen(project)


def tablegen(project: Path) -> None:
    """Has mlir-tblgen read every .td file of a project."""
    toolchain = json.loads(
        subprocess.run(
            ["python", "tools/toolchain.py", "fetch", "--json"], cwd=project, capture_output=True, text=True, check=True
        ).stdout
    )
    for path in files(project, ".td"):
        command = [f"{toolchain['triton_llvm_dir']}/bin/mlir-tblgen", "--print-records", path, "-o", "/dev/null"]
        for folder in (project / "include", toolchain["triton_include_dir"], f"{toolchain['triton_llvm_dir']}/include"):
            command += ["-I", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_answers_are_what_the_metadata_says(project: Path) -> None:
    answers = yaml.safe_load((project / ".copier-answers.yml").read_text())
    metadata = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert metadata["name"] == answers["project_name"]
    assert metadata["description"] == answers["description"]
    assert metadata["authors"][0]["name"] == answers["author"]
    assert metadata["license"] == answers["license"]
    assert metadata["dependencies"] == [f"triton~={answers['triton']}.0"]


def test_the_size_budget_of_a_rendered_project(tmp_path: Path) -> None:
    project = projects.render(tmp_path / "project")

    def lines(*patterns: str) -> int:
        return sum(len(path.read_text().splitlines()) for pattern in patterns for path in project.glob(pattern))

    sizes = {
        "cmake": lines("cmake/*"),
        "the sample's C++": lines("include/*/*.h", "lib/*/*"),
    }
    assert sizes["cmake"] <= 250, sizes
    assert sizes["the sample's C++"] <= 500, sizes


REFUSED = [
    ("project_name", "Upper"),
    ("project_name", "1st"),
    ("project_name", "a--b"),
    ("project_name", "a_b"),
    ("project_name", "naïve"),
    ("project_name", "a b"),
    ("project_name", "triton"),
    ("project_name", "x" * 41),
    ("project_name", 'a"b'),
    ("project_name", "a\nb"),
    ("project_name", ""),
    ("package", "class"),
    ("package", "json"),
    ("package", "triton"),
    ("package", "torch"),
    ("package", "tests"),
    ("package", "1a"),
    ("package", "a-b"),
    ("package", "_a"),
    ("package", "a;import os"),
    ("dialect", "arith"),
    ("dialect", "tt"),
    ("dialect", "namespace"),
    ("dialect", "int"),
    ("dialect", "std"),
    ("dialect", "A"),
    ("dialect", "x" * 25),
    ("dialect", "a.b"),
    ("description", "two\nlines"),
    ("description", ""),
    ("description", "x" * 121),
    ("author", "a\tb"),
    ("author", " "),
    ("email", "nobody"),
    ("email", 'a"@b.org'),
    ("repository", "http://example.org/x"),
    ("repository", "https://example.org/x y"),
    ("repository", "javascript:alert(1)"),
    ("license", "GPL"),
    ("triton", "3.6"),
    ("components", ["dsl"]),
    ("components", []),
    ("components", ["pass", "nothing"]),
    ("targets", []),
    ("targets", ["intel"]),
    ("policy", "panic"),
    ("ci", "jenkins"),
]


@pytest.mark.parametrize(("question", "answer"), REFUSED)
def test_an_invalid_answer_is_refused_by_name(tmp_path: Path, question: str, answer: Any) -> None:
    with pytest.raises(ValueError, match=question):
        projects.render(tmp_path / "project", **{question: answer})
    assert not (tmp_path / "project").exists()


TEXT = st.text(
    st.one_of(st.characters(), st.sampled_from(list("\"'\\{}%$`#<>:\n&*!|-"))), min_size=1, max_size=40
) | st.sampled_from(
    ["{{ 1/0 }}", "{% raw %}", '"""', "'''", "$(rm -rf /)", "%s", "\\n", "]]", "null", "- a", "# x", "@x"]
)


QUESTIONS = ["description", "author", "project_name", "package", "dialect", "email", "repository"]


# 25 examples of ten renderings each.
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT, words=st.from_regex(r"[a-z][a-z0-9]{0,8}(_[a-z][a-z0-9]{0,8})?", fullmatch=True))
def test_a_hostile_answer_is_refused_or_means_itself(
    tmp_path_factory: pytest.TempPathFactory, text: str, words: str
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    accepted: dict[str, str] = {}
    for question in QUESTIONS:
        for answer in (text, words) if question in ("package", "dialect") else (text,):
            try:
                projects.render(folder / "alone", **{question: answer})
                accepted[question] = answer
            except ValueError as error:
                refused_by_name = question in str(error)
                assert refused_by_name, error  # noqa: PT017
            finally:
                shutil.rmtree(folder / "alone", ignore_errors=True)
    # What is accepted alone is accepted together.
    project = projects.render(folder / "project", **accepted)
    parse(project)
    metadata = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert metadata["description"] == accepted.get("description", metadata["description"])
    assert metadata["authors"][0]["name"] == accepted.get("author", metadata["authors"][0]["name"])
    assert metadata["authors"][0].get("email", "") == accepted.get("email", "")
    assert metadata["name"] == accepted.get("project_name", metadata["name"])
    subprocess.run(["gersemi", "--check", "cmake", "CMakeLists.txt"], cwd=project, check=True, capture_output=True)
    tablegen(project)
    if "dialect" in accepted:
        assert f'let name = "{accepted["dialect"]}";' in "".join(
            path.read_text() for path in project.glob("include/*/*Dialect.td")
        )
    if "package" in accepted:
        assert (project / "src" / accepted["package"] / "__init__.py").exists()


PRELUDE = """
#include "mlir/Dialect/CommonFolders.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "triton/Dialect/TritonGPU/IR/Dialect.h"
#include "triton/Tools/PluginUtils.h"
#include "python/src/ir.h"
#include <cmath>
"""


def test_every_word_of_the_headers_is_refused_or_free_as_a_dialect(rendered: Path, tmp_path: Path) -> None:
    """All words of 10 million characters of headers, with the compiler, at once."""
    fetched = subprocess.run(
        ["python", "tools/toolchain.py", "fetch", "--json"], cwd=rendered, capture_output=True, text=True, check=True
    )
    toolchain = json.loads(fetched.stdout)
    clang = next(path for name in ("clang++", "clang++-22") if (path := shutil.which(name)))
    command = [clang, "-std=c++20", "-fno-rtti", "-w", "-ferror-limit=0", "-x", "c++"]
    command += [f"-isystem{toolchain['triton_include_dir']}", f"-isystem{toolchain['triton_llvm_dir']}/include"]
    text = subprocess.run([*command, "-E", "-P", "-"], input=PRELUDE, capture_output=True, text=True, check=True).stdout
    words = set(re.findall(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)*\b", text))
    reserved = yaml.safe_load((projects.ROOT / "copier.yml").read_text())["reserved_dialects"]["default"].split()
    free = sorted(word for word in words - set(reserved) if len(word) <= 24)
    assert len(free) > 3000
    probe = tmp_path / "probe.cpp"
    probe.write_text(PRELUDE + "".join(f"namespace mlir::{word} {{ int probe; }}\n" for word in free))
    done = subprocess.run([*command, "-fsyntax-only", probe], capture_output=True, text=True)
    lines = {int(line) for line in re.findall(r"probe.cpp:(\d+):\d+: error", done.stderr)}
    assert [free[line - PRELUDE.count("\n") - 1] for line in sorted(lines)] == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name",
    ["all", "clean", "edit_cache", "help", "install", "package", "preinstall", "rebuild_cache", "record", "test"],
)
def test_names_that_cmake_or_the_build_takes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="package"):
        projects.render(tmp_path / "project", package=name)


def test_rendering_needs_no_trust() -> None:
    settings = yaml.safe_load((projects.ROOT / "copier.yml").read_text())
    assert not {"_tasks", "_migrations", "_jinja_extensions"} & settings.keys()


TEMPLATE_OWNED = (
    "cmake",
    "tools",
    "native",
    "_runtime",
    "support",
    "workflows",
    "actionlint",
    "ISSUE_TEMPLATE",
    "pull_request_template",
    "_native.pyi",
    ".gitlab-ci",
    ".clang",
    ".pre-commit",
    ".gersemirc",
)


def test_files_of_the_template_say_so(project: Path) -> None:
    for path in files(project, ""):
        relative = path.relative_to(project)
        owned = any(part.startswith(TEMPLATE_OWNED) for part in relative.parts)
        says = "Owned by the project template" in path.read_text().partition("\n")[0]
        assert owned == says or relative.suffix == ".pth", relative
