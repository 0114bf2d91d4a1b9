"""Triton 3.8 and 3.7: headers out of Triton's source, and the LLVM that must be theirs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import projects
import pytest
from projects import Project
from test_older_tritons import LLVM, stock, wheel
from test_update import commit, git

pytestmark = pytest.mark.xdist_group("older")

# The mlir_tablegen lines of Triton 3.9.0's build, as far as they make headers.
TABLEGEN = {
    "Dialect/Triton/IR": {
        "TritonOps.td": ["Ops op-decls", "OpsEnums enum-decls"],
        "TritonAttrDefs.td": ["AttrDefs attrdef-decls"],
        "TritonTypeEnums.td": ["TypesEnums enum-decls"],
        "TritonDialect.td": ["Dialect dialect-decls"],
        "TritonTypes.td": ["Types typedef-decls"],
        "TritonInterfaces.td": ["AttrInterfaces attr-interface-decls"],
        "TritonTypeInterfaces.td": ["TypeInterfaces type-interface-decls"],
        "TritonOpInterfaces.td": ["OpInterfaces op-interface-decls"],
    },
    "Dialect/TritonGPU/IR": {
        "TritonGPUOps.td": [
            "Dialect dialect-decls -dialect=ttg", "Ops op-decls", "Types typedef-decls -typedefs-dialect=ttg",
        ],
        "TritonGPUAttrInterfaces.td": ["AttrInterfaces attr-interface-decls"],
        "TritonGPUAttrDefs.td": ["AttrDefs attrdef-decls"],
        "TritonGPUEnums.td": ["OpsEnums enum-decls"],
        "CGAEncodingAttr.td": ["CGAEncodingAttr attrdef-decls"],
        "TritonGPUTypeInterfaces.td": ["TypeInterfaces type-interface-decls"],
        "TritonGPUOpInterfaces.td": ["OpInterfaces op-interface-decls"],
    },
    "Dialect/TritonNvidiaGPU/IR": {
        "TritonNvidiaGPUOps.td": [
            "Dialect dialect-decls -dialect=ttng", "Ops op-decls", "Types typedef-decls -typedefs-dialect=ttng",
        ],
        "TritonNvidiaGPUAttrDefs.td": ["TritonNvidiaGPUAttrDefs attrdef-decls"],
        "TritonNvidiaGPUEnums.td": ["OpsEnums enum-decls"],
        "TritonNvidiaGPUOpInterfaces.td": ["TritonNvidiaGPUOpInterfaces op-interface-decls"],
    },
    "Dialect/Triton/Transforms": {"Passes.td": ["Passes pass-decls -name=Triton"]},
    "Dialect/TritonGPU/Transforms": {"Passes.td": ["Passes pass-decls -name=TritonGPU"]},
    "Conversion/TritonToTritonGPU": {"Passes.td": ["Passes pass-decls --name TritonToTritonGPU"]},
}  # fmt: skip


def source_tree(path: Path) -> Path:
    """Triton's source, as far as a plugin needs it, out of the 3.9 wheel, as a repository."""
    include = wheel("3.9.0") / "include"
    for file in include.rglob("*"):
        if file.suffix in (".h", ".td") and file.name != "Version.h":
            relative = file.relative_to(include)
            target = path / (relative if relative.parts[0] == "python" else Path("include") / relative)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    # Debian's mlir-tblgen 23 knows no second argument of Resource; no header has it.
    effects = path / "include/triton/Dialect/TritonGPU/IR/TritonGPUMemoryEffects.td"
    text = re.sub(r'Resource<\s*("[^"]+"),\s*\[\{.*?\}\]>', r"Resource<\1>", effects.read_text(), flags=re.DOTALL)
    effects.write_text(text)
    for folder, files in TABLEGEN.items():
        lines = []
        for name, outputs in files.items():
            lines.append(f"set(LLVM_TARGET_DEFINITIONS {name})")
            for output in outputs:
                stem, generator = output.split(" ", 1)
                lines.append(f"mlir_tablegen({stem}.h.inc -gen-{generator})")
                lines.append(f"mlir_tablegen({stem}.cpp.inc -gen-never-run)")
        (path / "include/triton" / folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    git(path, "init", "-q")
    git(path, "config", "uploadpack.allowAnySHA1InWant", "true")
    commit(path, "3.9.0, out of its wheel")
    return path


def head(repository: Path) -> str:
    return git(repository, "rev-parse", "HEAD").strip()


def without_headers(folder: Path) -> Path:
    """A folder with Triton 3.9.0 whose wheel brings no headers, as those of 3.8."""
    triton = folder / "triton"
    triton.mkdir(parents=True)
    for path in wheel("3.9.0").iterdir():
        if path.name != "include":
            (triton / path.name).symlink_to(path)
    return folder


def pins(project: Path, repository: object, source: str) -> None:
    """Makes the project's pins name another repository, and another commit for 3.9.0."""
    path = project / "tools/triton.toml"
    text = path.read_text().replace("https://github.com/triton-lang/triton", str(repository))
    path.write_text(text.replace('source = "v3.9.0"', f'source = "{source}"'))


def toolchain(
    project: Path, command: str, triton: Path, home: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """tools/toolchain.py beside the Triton in a folder."""
    settings = {"PYTHONPATH": str(triton), "TRITON_HOME": str(home)} | environment
    return subprocess.run(
        [sys.executable, "tools/toolchain.py", command, "--json"],
        cwd=project,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def llvm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The LLVM that the builds here take."""
    project = projects.render(tmp_path_factory.mktemp("llvm") / "project")
    done = subprocess.run(
        [sys.executable, "tools/toolchain.py", "fetch", "--json"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    return str(json.loads(done.stdout)["triton_llvm_dir"])


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_tree(tmp_path_factory.mktemp("source") / "triton")


def test_a_plugin_builds_with_headers_from_source(rendered: Path, repository: Path, tmp_path: Path, llvm: str) -> None:
    pins(rendered, repository, head(repository))
    triton = without_headers(tmp_path / "old")
    home = tmp_path / "home"
    staged = toolchain(rendered, "fetch", triton, home, LLVM_SYSPATH=llvm)
    assert staged.returncode == 0, staged.stderr
    assert "Fetching Triton 3.9.0" in staged.stderr
    assert "mlir-tblgen: 100%" in staged.stderr
    include = Path(json.loads(staged.stdout)["triton_include_dir"])
    assert '#define TRITON_VERSION "3.9.0"' in (include / "triton/Version.h").read_text()
    # As the wheel has them, but for what another mlir-tblgen writes in other words.
    theirs = wheel("3.9.0") / "include"
    for name in ("Dialect/Triton/IR/OpsEnums.h.inc", "Dialect/TritonGPU/IR/OpsEnums.h.inc"):
        assert (include / "triton" / name).read_text() == (theirs / "triton" / name).read_text()
    again = toolchain(rendered, "verify", triton, home, LLVM_SYSPATH=llvm, TRITON_OFFLINE_BUILD="1")
    assert again.returncode == 0, again.stderr
    assert "Fetching" not in again.stderr
    assert [path.name for path in (home / ".triton/llvm-plugin").iterdir() if path.is_dir()] == [include.name]

    project = Project(rendered, projects.environment(tmp_path / "environment"))
    project.install(env={"PYTHONPATH": str(triton), "TRITON_HOME": str(home), "LLVM_SYSPATH": llvm})
    project.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_registration.py")


def test_a_checkout_that_is_here_is_taken(rendered: Path, repository: Path, tmp_path: Path, llvm: str) -> None:
    pins(rendered, "/nowhere", head(repository))
    triton = without_headers(tmp_path / "old")
    taken = {"LLVM_SYSPATH": llvm, "TRITON_SOURCE_DIR": str(repository), "TRITON_OFFLINE_BUILD": "1"}
    assert toolchain(rendered, "fetch", triton, tmp_path / "home", **taken).returncode == 0
    pins(rendered, "/nowhere", "v3.9.0")
    text = (rendered / "tools/triton.toml").read_text()
    (rendered / "tools/triton.toml").write_text(text.replace(head(repository), "d" * 40))
    other = toolchain(rendered, "fetch", triton, tmp_path / "home", **taken)
    assert other.returncode == 1
    assert f"which is at {head(repository)}; Triton 3.9.0 is {'d' * 40}" in other.stderr


FAULTS = {
    "a remote that is not there": (lambda _: None, "/nowhere", None, "Cannot fetch"),
    "a commit that is not there": (lambda _: None, None, "e" * 40, "Cannot fetch " + "e" * 40),
    "a tree without a header": (
        lambda tree: (tree / "include/triton/Tools/PluginUtils.h").unlink(), None, None,
        "gives no triton/Tools/PluginUtils.h",
    ),
    "a tree without a .td file": (
        lambda tree: (tree / "include/triton/Dialect/Triton/IR/TritonOps.td").unlink(), None, None,
        "no include/triton/Dialect/Triton/IR/TritonOps.td, of which Ops.h.inc is made",
    ),
    "a .td file that is damaged": (
        lambda tree: (tree / "include/triton/Dialect/Triton/IR/TritonOps.td").write_text("def {"), None, None,
        "mlir-tblgen cannot make triton/Dialect/Triton/IR/Ops.h.inc",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_is_named_and_nothing_is_half_staged(
    rendered: Path, repository: Path, tmp_path: Path, llvm: str, fault: str
) -> None:
    breaking, remote, source, says = FAULTS[fault]
    broken = tmp_path / "broken"
    shutil.copytree(repository, broken)
    breaking(broken)
    if git(broken, "status", "--porcelain"):
        commit(broken, fault)
    pins(rendered, remote or broken, source or head(broken))
    home = tmp_path / "home"
    done = toolchain(rendered, "fetch", without_headers(tmp_path / "old"), home, LLVM_SYSPATH=llvm)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in (home / ".triton/llvm-plugin").iterdir() if path.is_dir()] == []


def test_a_release_that_is_not_known_and_has_no_headers_is_an_error(rendered: Path, tmp_path: Path, llvm: str) -> None:
    triton = without_headers(tmp_path / "old")
    start = triton / "triton/__init__.py"
    text = start.read_text().replace("3.9.0", "3.9.7")
    start.unlink()
    start.write_text(text)
    done = toolchain(rendered, "fetch", triton, tmp_path / "home", LLVM_SYSPATH=llvm)
    assert done.returncode == 1
    assert "Triton 3.9.7 in" in done.stderr
    assert "has no C++ headers, and tools/triton.toml does not know where its source is" in done.stderr
    assert "tools/new_triton.py" in done.stderr


def test_two_builds_at_once_stage_once(rendered: Path, repository: Path, tmp_path: Path, llvm: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    pins(rendered, repository, head(repository))
    triton, home = without_headers(tmp_path / "old"), tmp_path / "home"
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda _: toolchain(rendered, "fetch", triton, home, LLVM_SYSPATH=llvm), range(3)))
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert sum("Fetching Triton" in run.stderr for run in runs) == 1


LINES = {"3.8": "3.8.0", "3.7": "3.7.1"}


@pytest.mark.parametrize("line", LINES)
def test_an_older_line_follows_the_answer(tmp_path: Path, line: str) -> None:
    project = projects.render(tmp_path / "project", triton=line)
    metadata = tomllib.loads((project / "pyproject.toml").read_text())
    assert metadata["project"]["dependencies"] == [f"triton~={line}.0"]
    assert f"triton~={line}.0" in metadata["build-system"]["requires"]
    texts = "".join(path.read_text() for path in (project / "docs").rglob("*.md"))
    assert f"triton~={line}.0" in texts
    # The author's C++ and Python are the same for all lines.
    newest = projects.render(tmp_path / "newest")
    for path in [*newest.glob("include/*/*"), *newest.glob("lib/*/*"), *newest.glob("src/*/*.py")]:
        assert (project / path.relative_to(newest)).read_bytes() == path.read_bytes(), path


@pytest.mark.parametrize("line", LINES)
def test_an_older_line_takes_its_own_llvm_or_none(tmp_path: Path, line: str) -> None:
    project = projects.render(tmp_path / "project", triton=line)
    version = LINES[line]
    triton = stock(f"triton=={version}")
    offline = {"TRITON_OFFLINE_BUILD": "1", "TRITON_LLVM_MATCH": "exact"}
    done = toolchain(project, "fetch", triton, tmp_path / "home", **offline)
    assert done.returncode == 1
    assert f"No LLVM for Triton {version} here" in done.stderr
    assert LLVM[version] in done.stderr
    near = toolchain(project, "fetch", triton, tmp_path / "home", TRITON_LLVM_MATCH="nearest")
    assert near.returncode == 1
    assert f"For Triton {version} only its own LLVM will do" in near.stderr
    assert "misjudge types" in near.stderr


@pytest.mark.parametrize("line", LINES)
def test_an_older_line_configures_with_its_llvm_and_headers(tmp_path: Path, repository: Path, line: str) -> None:
    """Up to where the compiler would need that LLVM: here it is a prefix that says it is."""
    project = projects.render(tmp_path / "project", triton=line)
    version = LINES[line]
    fake = tmp_path / "llvm"
    for name, text in {
        "include/llvm/Config/abi-breaking.h": "#define LLVM_ENABLE_ABI_BREAKING_CHECKS 1\n",
        "include/llvm/Support/VCSRevision.h": f'#define LLVM_REVISION "{LLVM[version]}"\n',
        "bin/mlir-tblgen": '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho "// made" >"$2"\n',
    }.items():
        (fake / name).parent.mkdir(parents=True, exist_ok=True)
        (fake / name).write_text(text)
    (fake / "bin/mlir-tblgen").chmod(0o755)
    release = tomllib.loads((project / "tools/triton.toml").read_text())["releases"][version]
    path = project / "tools/triton.toml"
    path.write_text(path.read_text().replace(release["source"], head(repository)))
    environment = {
        "PYTHONPATH": str(stock(f"triton=={version}")),
        "TRITON_HOME": str(tmp_path / "home"),
        "TRITON_SOURCE_DIR": str(repository),
        "LLVM_SYSPATH": str(fake),
        "TRITON_LLVM_MATCH": "exact",
    }
    done = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", project, "-B", tmp_path / "build", f"-DPython_EXECUTABLE={sys.executable}"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"Triton {version}, LLVM {LLVM[version]} (exact)" in done.stdout
    staged = next((tmp_path / "home/.triton/llvm-plugin").glob(f"headers-{version}-*/triton/Version.h"))
    assert f'#define TRITON_VERSION "{version}"' in staged.read_text()


def test_one_version_for_several_lines(tmp_path: Path) -> None:
    project = projects.render(tmp_path / "project")
    before = (project / "pyproject.toml").read_text()
    for line, number in (("3.8", "38"), ("3.7", "37"), ("3.9", "39")):
        subprocess.run([sys.executable, "tools/line.py", line], cwd=project, check=True)
        metadata = tomllib.loads((project / "pyproject.toml").read_text())
        assert metadata["project"]["version"] == f"0.1.0.post{number}"
        assert metadata["project"]["dependencies"] == [f"triton~={line}.0"]
        assert f"triton~={line}.0" in metadata["build-system"]["requires"]
    assert (project / "pyproject.toml").read_text() == before.replace('"0.1.0"', '"0.1.0.post39"')
    refused = subprocess.run([sys.executable, "tools/line.py", "x"], cwd=project, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "name a line of Triton" in refused.stderr


def empty_wheel(folder: Path, name: str, version: str, requires: str = "") -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", metadata + (f"Requires-Dist: {requires}\n" if requires else ""))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize(("wanted", "number"), [("3.7.1", "37"), ("3.8.0", "38"), ("3.9.0", "39"), (None, "39")])
def test_pip_takes_the_wheel_of_the_triton_that_is_wanted(tmp_path: Path, wanted: str | None, number: str) -> None:
    for version in ("3.7.1", "3.8.0", "3.9.0"):
        empty_wheel(tmp_path, "triton", version)
        line = version[:3]
        empty_wheel(tmp_path, "my_plugin", f"1.2.0.post{line.replace('.', '')}", f"triton~={line}.0")
    pip = [sys.executable, "-m", "pip", "install", "--ignore-installed", "--no-index", "--find-links", str(tmp_path)]
    pip += ["--target", str(tmp_path / "target"), "my-plugin", *([f"triton=={wanted}"] if wanted else [])]
    environment = os.environ | {"PIP_CONFIG_FILE": os.devnull, "PIP_CONSTRAINT": ""}
    subprocess.run(pip, check=True, capture_output=True, env=environment)
    assert (tmp_path / "target" / f"my_plugin-1.2.0.post{number}.dist-info").is_dir()
