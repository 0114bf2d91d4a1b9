"""Wheels, source distributions, workflows, linters and the docs of a rendered project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import projects
import pytest
import yaml
from conftest import ODD, PACKAGE
from projects import Project
from test_update import commit, git

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "odd": ODD,
    "gitlab": {"ci": "gitlab", "license": "BSD-3-Clause", "components": ["pass"], "targets": ["amd"]},
    "none": {"ci": "none", "license": "Apache-2.0", "components": ["dialect"]},
    "older": {"triton": "3.8", "license": "Apache-2.0 WITH LLVM-exception"},
}


@pytest.fixture(scope="module", params=VARIANTS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = projects.render(tmp_path_factory.mktemp("shipping") / "project", **VARIANTS[request.param])
    git(path, "init", "-q")
    commit(path, "rendered")
    return path


def run(folder: Path, *command: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, **options)
    assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def test_spelling_and_licences(project: Path) -> None:
    run(project, "codespell")
    run(project, "reuse", "lint")


def test_workflows(project: Path) -> None:
    workflows = sorted(project.glob(".github/workflows/*.yml"))
    if workflows:
        run(project, "zizmor", "--offline", "--no-progress", ".github")
        run(project, "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
        forms = sorted(project.glob(".github/ISSUE_TEMPLATE/*.yml"))
        run(project, "check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", *forms)
    elif (project / ".gitlab-ci.yml").exists():
        run(project, "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", ".gitlab-ci.yml")
    run(project, "check-jsonschema", "--builtin-schema", "vendor.citation-file-format", "CITATION.cff")


def test_the_docs_build_without_warnings(project: Path) -> None:
    run(project, "mkdocs", "build", "--strict", "--site-dir", project.parent / "site")
    passes = (project.parent / "site/reference/passes/index.html").read_text()
    assert "rewrite-libdevice-tanh" in passes or "lower-approx-tanh" in passes
    assert (project.parent / "site/reference/python/index.html").exists()


def test_every_licence_text_is_the_same_in_both_places(project: Path) -> None:
    whole = (project / "LICENSE").read_text()
    for path in (project / "LICENSES").iterdir():
        assert path.read_text().strip() in whole, path.name


# What the workflows run, and where a test here runs it: this file's tests, but for
# the last group, which needs a forge, a container engine, or a network of its own.
RUN_HERE = {
    "codespell", "mypy", "mkdocs build --strict", "pytest", "python -m build --sdist", f"python -m {PACKAGE} doctor",
    "pip install '.[test]'", 'python tools/release.py "$GITHUB_REF_NAME" dist', "pip install dist/*.tar.gz",
    'python tools/new_triton.py propose old new --report report.md >> "$GITHUB_OUTPUT"',
    'python tools/line.py "$LINE"',
    'echo "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)" >> "$GITHUB_ENV"',
}  # fmt: skip
NOT_RUN_HERE = {
    "sudo apt-get update && sudo apt-get install --yes ccache",
    "pip install pre-commit '.[dev,docs]'", "pre-commit run --all-files", "cibuildwheel",
    "pip install cibuildwheel==3.2.1", "pip install build==1.6.1", "pip install pyelftools urllib3 filelock tqdm",
    "pip install --target old --no-deps 'triton~=3.9.0'", "pip install --target new --no-deps triton",
}  # fmt: skip


def test_each_step_of_the_workflows_is_known_to_be_run_here_or_not(tmp_path: Path) -> None:
    project = projects.render(tmp_path / "project")
    steps = set()
    for path in project.glob(".github/workflows/*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            steps |= {step["run"] for step in job["steps"] if "run" in step}
    others = steps - RUN_HERE - NOT_RUN_HERE
    assert {step.partition("\n")[0].partition(" '")[0] for step in others} == {
        "echo",  # what was not run
        'git switch --create "triton-$VERSION"',  # opens a pull request
    }


def built(folder: Path) -> Path:
    """The project under git, with the wheel and the source distribution that docs/shipping.md makes."""
    project = projects.render(folder / "project")
    git(project, "init", "-q")
    commit(project, "rendered")
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    run(project, sys.executable, "-m", "build", "--no-isolation", env=environment)
    wheel = next((project / "dist").glob("*.whl"))
    run(project, "auditwheel", "repair", "--exclude", "libtriton.so", wheel, env=environment)
    return project


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return next((built(tmp_path_factory.mktemp("wheel")) / "wheelhouse").glob("*.whl"))


@pytest.fixture
def bare(tmp_path: Path) -> Project:
    """An environment that has stock Triton and nothing else."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    outer = Path(sysconfig.get_path("purelib"))
    inner = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for path in (outer / "triton", *outer.glob("triton-*.dist-info")):
        (inner / path.name).symlink_to(path)
    return Project(tmp_path, folder / "bin" / "python")


def pip(project: Project, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--python", project.python, "--disable-pip-version-check"]
    return project.run(*command, *arguments, check=check)


pytestmark = pytest.mark.xdist_group("shipping")


def test_the_wheel_is_small_honest_and_repeatable(wheel: Path, tmp_path: Path) -> None:
    assert re.search(r"-cp3\d+-cp3\d+-manylinux_2_\d+_\w+\.whl$", wheel.name)
    assert wheel.stat().st_size < 1_000_000
    again = next((built(tmp_path / "a folder ü") / "wheelhouse").glob("*.whl"))
    assert again.read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        assert sum(member.file_size for member in archive.infolist()) < 2_000_000
        names = archive.namelist()
        for name in names:
            data = archive.read(name)
            assert str(wheel.parent.parent).encode() not in data, name
            assert str(Path.home()).encode() not in data, name
    assert not [name for name in names if "libtriton" in Path(name).name and name.endswith(".so")]
    assert f"{PACKAGE}/_native.pyi" in names


def test_it_installs_without_a_compiler_and_works_beside_stock_triton(wheel: Path, bare: Project) -> None:
    pip(bare, "install", "--no-index", wheel)
    pip(bare, "check")
    environment = {"CXX": "/bin/false"}
    bare.run("python", "-m", PACKAGE, "doctor", cwd="/", env=environment)
    kernels = wheel.parent.parent / "tests/kernels.py"
    command = ["python", "-m", PACKAGE, "inspect", f"{kernels}:libdevice_kernel", "--signature", "*fp32,*fp32,i32,i32"]
    command += ["--constexpr", "BLOCK=256", "--enable", "rewrite_libdevice_tanh"]
    assert "tanh.approx.f32" in bare.run(*command, cwd="/", env=environment).stdout


def test_beside_another_line_pip_refuses_it_and_the_doctor_says_why(wheel: Path, bare: Project) -> None:
    from test_older_tritons import stock

    site = next(bare.python.parent.parent.glob("lib/*/site-packages"))
    for path in site.glob("triton*"):
        path.unlink()
    for path in stock("triton==3.8.0").glob("triton*"):
        (site / path.name).symlink_to(path)
    refused = pip(bare, "install", "--no-index", wheel, check=False)
    assert refused.returncode != 0
    assert "triton~=3.9.0" in refused.stdout + refused.stderr
    pip(bare, "install", "--no-index", "--no-deps", wheel)
    assert pip(bare, "check", check=False).returncode != 0
    doctor = bare.run("python", "-m", PACKAGE, "doctor", cwd="/", check=False)
    assert doctor.returncode != 0
    assert "3.8.0" in doctor.stdout
    assert "3.9" in doctor.stdout


def test_a_wheel_for_another_machine_is_refused(wheel: Path, bare: Project, tmp_path: Path) -> None:
    other = tmp_path / re.sub(r"manylinux_2_(\d+)_\w+", r"manylinux_2_\1_ppc64le", wheel.name)
    shutil.copy(wheel, other)
    done = pip(bare, "install", "--no-index", other, check=False)
    assert "is not a supported wheel on this platform" in done.stdout + done.stderr


def test_the_source_distribution_builds(wheel: Path, tmp_path: Path) -> None:
    sdist = next((wheel.parent.parent / "dist").glob("*.tar.gz"))
    project = Project(tmp_path, projects.environment(tmp_path / "environment"))
    pip(project, "install", "--no-deps", "--no-build-isolation", sdist)
    project.run("python", "-m", PACKAGE, "doctor", cwd="/")


@pytest.mark.xdist_group("default")
def test_the_stubs_of_native_are_those_of_the_module(default: Project) -> None:
    # _native wants libtriton in the process, which loading the plugin sees to.
    code = f"import sys, {PACKAGE}; {PACKAGE}.load(); from {PACKAGE}._runtime.loader import native; native()"
    code += f"; from mypy.stubtest import main; sys.argv = ['stubtest', '{PACKAGE}._native']; sys.exit(main())"
    default.run("python", "-c", code, cwd="/")


def release(wheel: Path, tag: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run(wheel.parent.parent, sys.executable, "tools/release.py", tag, folder, check=False)


def with_record(wheel: Path, folder: Path, **changes: str) -> Path:
    """A copy of the wheel in `folder`, whose build record says something else."""
    folder.mkdir()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(folder / wheel.name, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(f"/lib{PACKAGE}.json"):
                data = json.dumps(json.loads(data) | changes).encode()
            new.writestr(name, data)
    return folder


def test_a_release_of_an_exact_build_is_allowed(wheel: Path, tmp_path: Path) -> None:
    done = release(wheel, "v0.1.0", with_record(wheel, tmp_path / "dist", llvm_match="exact"))
    assert (done.returncode, done.stderr) == (0, "")


def test_what_must_not_be_released_is_named(wheel: Path, tmp_path: Path) -> None:
    near = with_record(wheel, tmp_path / "near", llvm_match="nearest")
    assert "nearest, not exact: build it with Triton's own LLVM" in release(wheel, "v0.1.0", near).stderr
    exact = with_record(wheel, tmp_path / "exact", llvm_match="exact")
    other = release(wheel, "v0.2.0", exact)
    assert other.returncode == 1
    assert "The tag is v0.2.0, and pyproject.toml says version 0.1.0" in other.stderr
    (tmp_path / "none").mkdir()
    assert "There is no wheel in" in release(wheel, "v0.1.0", tmp_path / "none").stderr
    (exact / wheel.name).rename(exact / re.sub(r"manylinux_2_\d+", "linux", wheel.name))
    assert "has no manylinux tag" in release(wheel, "v0.1.0", exact).stderr
