"""A rendered project builds, loads into stock Triton, and passes its own tests."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import projects
import pytest
from conftest import ODD, PACKAGE
from projects import Project


def own_tests(project: Project, *options: str) -> str:
    done = project.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
    return done.stdout


@pytest.mark.xdist_group("default")
def test_the_default_project_passes_its_own_tests(default: Project) -> None:
    output = own_tests(default)
    passed = int(re.search(r"(\d+) passed", output)[1])  # type: ignore[index]
    assert passed > 130
    # What needs a GPU is named, not silently left out.
    not_run = int(re.search(r"(\d+) tests were NOT RUN: they need a GPU", output)[1])  # type: ignore[index]
    assert not_run == int(re.search(r"(\d+) skipped", output)[1]) > 0  # type: ignore[index]


@pytest.mark.xdist_group("odd")
def test_the_odd_project_passes_its_own_tests(odd: Project) -> None:
    assert int(re.search(r"(\d+) passed", own_tests(odd))[1]) > 90  # type: ignore[index]


# Every pair of answers of two questions is in one of these (checked below); CI builds
# the first two, and all of them with --all-answers.
PAIRS = [
    {"components": ["pass"], "targets": ["nvidia", "amd"], "policy": "error", "ci": "none"},
    {"components": ["pass", "dialect"], "targets": ["amd"], "policy": "fallback", "ci": "github"},
    {"components": ["pass"], "targets": ["nvidia"], "policy": "fallback", "ci": "gitlab"},
    {"components": ["pass"], "targets": ["amd"], "policy": "error", "ci": "github"},
    {"components": ["dialect"], "targets": ["nvidia"], "policy": "error", "ci": "github"},
    {"components": ["dialect"], "targets": ["amd"], "policy": "fallback", "ci": "none"},
    {"components": ["dialect"], "targets": ["nvidia", "amd"], "policy": "error", "ci": "gitlab"},
    {"components": ["pass", "dialect"], "targets": ["nvidia"], "policy": "error", "ci": "none"},
    {"components": ["pass", "dialect"], "targets": ["nvidia", "amd"], "policy": "error", "ci": "gitlab"},
    {"components": ["dialect", "dsl"], "targets": ["nvidia"], "policy": "error", "ci": "none"},
    {"components": ["dialect", "dsl"], "targets": ["amd"], "policy": "error", "ci": "gitlab"},
    {"components": ["dialect", "dsl"], "targets": ["nvidia", "amd"], "policy": "fallback", "ci": "github"},
    {"components": ["pass", "dialect", "dsl"], "targets": ["nvidia"], "policy": "fallback", "ci": "github"},
    {"components": ["pass", "dialect", "dsl"], "targets": ["amd"], "policy": "error", "ci": "none"},
    {"components": ["pass", "dialect", "dsl"], "targets": ["nvidia", "amd"], "policy": "error", "ci": "gitlab"},
]


def test_every_pair_of_answers_is_built() -> None:
    choices = {question: {str(answers[question]) for answers in PAIRS} for question in PAIRS[0]}
    built = {
        (one, str(answers[one]), other, str(answers[other]))
        for answers in PAIRS
        for one, other in itertools.combinations(choices, 2)
    }
    wanted = {
        (one, first, other, second)
        for one, other in itertools.combinations(choices, 2)
        for first, second in itertools.product(choices[one], choices[other])
    }
    assert wanted - built == set()


def names(answers: dict[str, object]) -> str:
    return "-".join("+".join(value) if isinstance(value, list) else str(value) for value in answers.values())


@pytest.mark.parametrize("answers", PAIRS, ids=names)
def test_other_answers_build_grow_and_pass(tmp_path: Path, request: pytest.FixtureRequest, answers: Any) -> None:
    if answers not in PAIRS[:2] and not request.config.getoption("--all-answers"):
        pytest.skip("built with --all-answers")
    project = Project(
        projects.render(tmp_path / "project", project_name="other-plugin", **answers),
        projects.environment(tmp_path / "environment"),
    )
    kinds = [["pass", "fold_scale"]]
    if "dialect" in answers["components"]:
        kinds += [["op", "step", "--form", "attribute"], ["type", "pair"]]
    for kind in kinds:
        project.run("python", "tools/add.py", *kind)
    project.install()
    own_tests(project)


@pytest.mark.xdist_group("default")
def test_mypy_finds_nothing(default: Project) -> None:
    default.run("mypy")


@pytest.mark.xdist_group("odd")
def test_mypy_finds_nothing_in_the_odd_project(odd: Project) -> None:
    odd.run("mypy")


@pytest.mark.xdist_group("default")
def test_the_doctor_speaks_json(default: Project) -> None:
    report = json.loads(default.run("python", "-m", PACKAGE, "doctor", "--json", cwd="/").stdout)
    assert report["ok"]
    assert report["record"]["llvm_match"] == ("exact" if os.environ["TRITON_LLVM_MATCH"] == "exact" else "nearest")
    assert any("lower_approx_tanh" in name for name in report["pipeline"]["hip:gfx942"]["ttir"])


@pytest.mark.xdist_group("default")
def test_what_is_installed(default: Project) -> None:
    site = default.python.parent.parent / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    names = {path.name for path in (site / PACKAGE).iterdir()}
    assert {f"lib{PACKAGE}.so", f"lib{PACKAGE}.json", "py.typed"} <= names
    library = site / PACKAGE / f"lib{PACKAGE}.so"
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libtriton.so" in dynamic
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic
    for path in (library, *(site / PACKAGE).glob("_native*.so")):
        data = path.read_bytes()
        assert str(default.path).encode() not in data, path
        assert str(Path.home()).encode() not in data, path
        assert str(projects.ROOT).encode() not in data, path
    size = sum(path.stat().st_size for path in (site / PACKAGE).rglob("*") if path.suffix != ".pyc")
    assert size < 2_000_000


@pytest.mark.xdist_group("default")
def test_inspect_shows_both_sides(default: Project, tmp_path: Path) -> None:
    command = ["python", "-m", PACKAGE, "inspect", "tests/kernels.py:libdevice_kernel"]
    command += ["--signature", "*fp32,*fp32,i32,i32", "--constexpr", "BLOCK=256", "--enable", "rewrite_libdevice_tanh"]
    environment = {"PYTHONPATH": "tests"}
    text = default.run(*command, env=environment).stdout
    assert "-    %2 = tt.extern_elementwise" in text
    assert "tanh.approx.f32" in text
    default.run(*command, "--html", tmp_path / "page.html", env=environment)
    page = (tmp_path / "page.html").read_text()
    assert "tanh.approx.f32" in page
    assert 'class="diff' in page
    assert "src=" not in page
    assert 'href="http' not in page


@pytest.mark.xdist_group("default")
@pytest.mark.parametrize(
    ("arguments", "text", "says"),
    [
        (["--pipeline", "builtin.module(nope)"], "module {}", "'nope' does not refer to a registered pass"),
        ([], "tt.func @f( {", "<stdin>:1:"),
        ([], b"\xff\xfe", "codec can't decode"),
        (["--pipeline", "canonicalize("], "module {}", "error"),
        (["--verify-diagnostics"], "// expected-error @+1 {{never}}\nmodule {}", "never"),
    ],
)
def test_opt_fails_with_a_diagnostic(default: Project, arguments: list[str], text: str | bytes, says: str) -> None:
    data = text.encode() if isinstance(text, str) else text
    done = subprocess.run(
        [default.python, "-m", PACKAGE, "opt", *arguments], input=data, capture_output=True, cwd="/", timeout=100
    )
    assert done.returncode == 1
    assert says in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.xdist_group("default")
@pytest.mark.parametrize("text", ["module {" * 20_000 + "}" * 20_000, "// x\n" * 2_000_000 + "module {}"])
def test_opt_survives_what_is_huge(default: Project, text: str) -> None:
    done = subprocess.run(
        [default.python, "-m", PACKAGE, "opt"], input=text, capture_output=True, text=True, cwd="/", timeout=300
    )
    assert done.returncode in (0, 1), done.stderr[-500:]
    assert "Traceback" not in done.stderr


@pytest.mark.xdist_group("default")
def test_the_function_of_native_returns_or_raises(default: Project) -> None:
    code = f"""
import {PACKAGE} as plugin
from {PACKAGE}._runtime.loader import native
text = "module {{ tt.func @f() {{ tt.return }} }}"
print("tt.func @f" in native().run_pipeline(text, "builtin.module(canonicalize)"))
try:
    native().run_pipeline("tt.func @f( {{", "builtin.module()")
except native().PipelineError as error:
    print("<string>:1:" in str(error))
"""
    assert default.run("python", "-c", code, cwd="/").stdout.split() == ["True", "True"]


@pytest.mark.xdist_group("default")
def test_opt_lists_passes_and_splits_input(default: Project) -> None:
    listed = default.run("python", "-m", PACKAGE, "opt", "--list-passes").stdout
    for name in ("canonicalize", "triton-combine", "tritongpu-coalesce", "my-extension-lower-approx-tanh"):
        assert f"--{name} " in listed, name
    text = "module { tt.func @a() { tt.return } }\n// -----\nmodule { tt.func @b() { tt.return } }\n"
    done = default.run("python", "-m", PACKAGE, "opt", "--split-input-file", input=text)
    assert done.stdout.count("// -----") == 1


@pytest.mark.xdist_group("default")
def test_the_benchmarks_run_and_compare(default: Project, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    plot = tmp_path / "plot.svg"
    output = default.run("python", "benchmarks/run.py", "--rounds", "1", "--json", old, "--plot", plot).stdout
    assert "<svg" in plot.read_text()
    assert "left out, for want of a GPU: launch" in output
    results = json.loads(old.read_text())
    for row in results["results"]:
        if row["name"] == "compile, cold":
            row["ratio"] *= 2
    new.write_text(json.dumps(results))
    default.run("python", "benchmarks/compare.py", old, old)
    worse = default.run("python", "benchmarks/compare.py", old, new, check=False)
    assert worse.returncode == 1
    assert "compile, cold" in worse.stderr


def refused(done: subprocess.CompletedProcess[str], *says: str) -> None:
    assert done.returncode != 0
    text = re.sub(r"\s+", " ", done.stdout + done.stderr)
    for part in says:
        assert part in text, text


def not_installed(tmp_path: Path) -> Project:
    return Project(projects.render(tmp_path / "project"), projects.environment(tmp_path / "environment"))


def test_gcc_is_refused_and_forgotten(tmp_path: Path) -> None:
    project = not_installed(tmp_path)
    refused(project.install(check=False, env={"CXX": "g++"}), "must be built with clang; found g++", "CXX=clang++")
    # The next attempt with clang must not remember it.
    cache = list(project.path.glob("build/*/CMakeCache.txt"))
    assert not any("CMAKE_CXX_COMPILER:" in path.read_text() for path in cache)


def test_no_compiler_is_an_error(tmp_path: Path) -> None:
    project = not_installed(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cmake", "ninja", "sh", "env"):
        (folder / name).symlink_to(shutil.which(name))  # type: ignore[arg-type]
    done = subprocess.run(
        ["cmake", "-S", project.path, "-B", tmp_path / "build", f"-DPython_EXECUTABLE={sys.executable}"],
        env={"PATH": str(folder), "HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
    )
    refused(done, "No clang++ on PATH", "apt-get install clang-22")


def test_no_llvm_is_an_error_of_the_build(tmp_path: Path) -> None:
    project = not_installed(tmp_path)
    environment = {"TRITON_LLVM_MATCH": "exact", "TRITON_OFFLINE_BUILD": "1", "TRITON_HOME": str(tmp_path)}
    refused(project.install(check=False, env=environment), "TRITON_OFFLINE_BUILD is set", "LLVM_SYSPATH")


def test_the_gate_names_a_missing_symbol(tmp_path: Path) -> None:
    project = not_installed(tmp_path)
    source = project.path / "lib" / "MyExtension" / "LowerApproxTanh.cpp"
    text = source.read_text()
    text = text.replace(
        "namespace mlir::my_extension {",
        "namespace mlir {\nvoid notInLibtriton();\n} // namespace mlir\n\nnamespace mlir::my_extension {",
        1,
    )
    text = text.replace(
        "  void runOnOperation() override {", "  void runOnOperation() override {\n    mlir::notInLibtriton();", 1
    )
    source.write_text(text)
    refused(project.install(check=False), "does not export", "notInLibtriton")


def test_odd_answers_differ_from_every_default(tmp_path: Path) -> None:
    import yaml

    questions = yaml.safe_load((projects.ROOT / "copier.yml").read_text())
    asked = {name for name, value in questions.items() if not name.startswith("_") and value.get("when") is not False}
    assert asked - {"triton"} == set(ODD)


SELF_TEST = """
typedef void (*report)(const char *, int);
int tritonPluginSelfTest(report say) {
  say("isa<IntegerType>", -1); say("isa<IntegerType>", 1);
  say("isa<FloatType>", -1); %s
}
"""


@pytest.mark.parametrize(
    ("end", "named"),
    [
        ('say("isa<FloatType>", 0); return 1;', "isa<FloatType>"),
        ("__builtin_trap();", "isa<FloatType> (ended with status"),
        ('say("isa<FloatType>", 1); return 0;', None),
    ],
)
def test_the_self_test_names_what_disagrees(tmp_path: Path, end: str, named: str | None) -> None:
    import importlib.util

    source = tmp_path / "fake.c"
    source.write_text(SELF_TEST % end)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / "fake.so"], check=True)
    spec = importlib.util.spec_from_file_location("finish_build", projects.ROOT / "template/tools/finish_build.py")
    assert spec is not None
    assert spec.loader is not None
    finish_build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(finish_build)
    failed = finish_build.self_test(tmp_path / "fake.so")
    assert len(failed) == (0 if named is None else 1)
    if named is not None:
        assert failed[0].startswith(named)
