"""An editable install, rebuilt on import; and what the three tiers notice."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path

import projects
import pytest
from conftest import PACKAGE
from projects import Project

pytestmark = pytest.mark.xdist_group("editable")


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("editable")
    project = Project(projects.render(folder / "project"), projects.environment(folder / "environment"))
    project.install("-Ceditable.rebuild=true", "-Cbuild-dir=build/editable", "--editable")
    return project


def sources(project: Project) -> Path:
    return project.path / "lib" / "MyExtension"


def test_an_import_rebuilds_what_changed(editable: Project) -> None:
    source = sources(editable) / "TanhLowering.cpp"
    text = source.read_text()
    code = f"import {PACKAGE} as p; print(p.load().record['sha256'])"
    before = editable.run("python", "-c", code, cwd="/").stdout.splitlines()[-1]
    source.write_text(text.replace("number(0.125)", "number(0.0625)"))
    started = time.monotonic()
    after = editable.run("python", "-c", code, cwd="/").stdout.splitlines()[-1]
    print(f"rebuilt in {time.monotonic() - started:.1f} s")
    source.write_text(text)
    again = editable.run("python", "-c", code, cwd="/").stdout.splitlines()[-1]
    assert before != after
    assert before == again


# What to break: the file, what stands there, what to put there instead, and the
# test of the project that has to notice.
MUTATIONS = {
    "a pass that does nothing": (
        "lib/MyExtension/LowerApproxTanh.cpp",
        "walkAndApplyPatterns(getOperation(), std::move(patterns));",
        "(void)patterns;",
        "test_ir_lowering.py::test_lowering",
    ),
    "a rewriting that does nothing": (
        "lib/MyExtension/RewriteLibdeviceTanh.cpp",
        "walkAndApplyPatterns(getOperation(), std::move(patterns));",
        "(void)patterns;",
        "test_ir_lowering.py::test_the_rewriting_changes_libdevice_only_when_it_is_on",
    ),
    "a pass left out of the pipeline": (
        f"src/{PACKAGE}/passes.py",
        'Pass("lower_approx_tanh", stage="ttir", at="end", options={"target": TARGET}),',
        "",
        "test_ir_lowering.py::test_the_order_of_passes",
    ),
    "the exact form for approx": (
        "lib/MyExtension/LowerApproxTanh.cpp",
        "? buildApproxTanh",
        "? buildExactTanh",
        "test_ir_lowering.py::test_the_instruction",
    ),
    "the wrong PTX for f16": (
        "lib/MyExtension/TanhLowering.cpp",
        'element.isF16() ? "f16" : "bf16"',
        'element.isF16() ? "bf16" : "f16"',
        "test_ir_lowering.py::test_lowering",
    ),
    "the packed form never used": (
        "lib/MyExtension/TanhLowering.cpp",
        "bool packed = narrow && tensor && tensor.getNumElements() % 2 == 0;",
        "bool packed = false && tensor;",
        "test_ir_lowering.py::test_the_instruction",
    ),
    "an op registered under another name": (
        "lib/MyExtension/Plugin.def",
        'OP("my_extension_approx_tanh"',
        'OP("my_extension_tanh"',
        "test_registration.py::test_the_op_is_registered_with_triton",
    ),
    "a pass registered under another name": (
        "lib/MyExtension/Plugin.def",
        'PASS("my_extension_lower_approx_tanh"',
        'PASS("my_extension_lower"',
        "test_registration.py::test_the_passes_are_registered_with_triton",
    ),
    "a wrong fallback": (
        f"src/{PACKAGE}/_runtime/dsl.py",
        "np.tanh(wide.handle.data)",
        "np.sin(wide.handle.data)",
        "test_kernel_result.py::test_the_fallback_in_the_interpreter",
    ),
    "a verifier that lets everything through": (
        "lib/MyExtension/MyExtensionOps.cpp",
        "if (element.isF16() || element.isBF16() || element.isF32())",
        "if (element.isIntOrFloat())",
        "test_ir_lowering.py::test_the_verifier_refuses",
    ),
    "a folder that computes something else": (
        "lib/MyExtension/MyExtensionOps.cpp",
        "std::tanh(",
        "std::sin(",
        "test_ir_lowering.py::test_lowering",
    ),
    "a cache key that forgets the options": (
        f"src/{PACKAGE}/_runtime/switch.py",
        "for name, value in step.options]] for step in steps",
        "for name, value in step.options]] for step in ()",
        "test_registration.py::test_the_cache_key_knows_what_is_enabled",
    ),
    "an Elementwise trait removed": (
        "include/MyExtension/MyExtensionOps.td",
        "[Elementwise, SameOperandsAndResultType, Pure]",
        "[SameOperandsAndResultType, Pure]",
        "test_ir_lowering.py::test_lowering",
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_tiers_notice(editable: Project, mutation: str) -> None:
    name, old, new, witness = MUTATIONS[mutation]
    path = editable.path / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    try:
        done = editable.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{witness}", check=False)
    finally:
        path.write_text(text)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^FAILED tests/{re.escape(witness)}", done.stdout, re.MULTILINE), done.stdout
    assert "error" not in done.stdout.splitlines()[-1], done.stdout  # a test failed; it did not break down


def test_invalid_ir_is_an_exception_and_the_next_kernel_compiles(editable: Project) -> None:
    path = sources(editable) / "TanhLowering.cpp"
    text = path.read_text()
    assert "packed ? 2 : 1" in text
    path.write_text(text.replace("packed ? 2 : 1", "packed ? 3 : 1"))
    code = f"""
import sys
sys.path.insert(0, "tests")
import kernels
import {PACKAGE} as plugin
from {PACKAGE}._runtime.compare import compile_kernel
plugin.enable()
def run(dtype):
    signature = "*" + dtype + ",*" + dtype + ",i32,i32"
    return compile_kernel(kernels.tanh_kernel, signature, {{"PRECISION": "approx", "BLOCK": 64}}, "cuda:90")
try:
    run("fp16")
except plugin.PluginError as error:
    print(error)
print("tanh.approx.f32" in run("fp32")["ptx"])
"""
    try:
        output = editable.run("python", "-c", code).stdout
    finally:
        path.write_text(text)
    assert "stage ttir for cuda:90 failed" in output
    assert "kernels.py" in output
    assert output.splitlines()[-1] == "True"


def test_after_adding_a_pass_only_what_depends_on_it_is_built_again(editable: Project) -> None:
    editable.run("python", "-c", f"import {PACKAGE} as p; p.load()", cwd="/")
    objects = {path: path.stat().st_mtime_ns for path in (editable.path / "build/editable").rglob("*.o")}
    editable.run("python", "tools/add.py", "pass", "fold_scale")
    output = editable.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_fold_scale.py").stdout
    assert "3 passed, 1 skipped" in output
    changed = {path.name for path, time in objects.items() if path.stat().st_mtime_ns != time}
    assert "Plugin.cpp.o" in changed
    assert list((editable.path / "build/editable").rglob("FoldScale.cpp.o"))
    # What includes no pass: the dialect, its ops, their builders, the machinery.
    kept = {"MyExtensionDialect.cpp.o", "MyExtensionOps.cpp.o", "Builders.cpp.o", "TanhLowering.cpp.o"}
    assert not changed & (kept | {"Registration.cpp.o", "SelfTest.cpp.o", "Native.cpp.o"})


def test_a_library_for_another_llvm_is_noticed(default: Project, tmp_path: Path) -> None:
    copy = copy_of(default, tmp_path)
    record = copy / PACKAGE / f"lib{PACKAGE}.json"
    record.write_text(re.sub(r'"llvm_commit": "\w+"', f'"llvm_commit": "{"4" * 40}"', record.read_text()))
    done = default.run(
        "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_registration.py", check=False,
        env={"PYTHONPATH": str(copy)},
    )  # fmt: skip
    assert "test_the_record_agrees_with_the_installed_triton" in done.stdout
    assert "4" * 40 in done.stdout


def copy_of(project: Project, folder: Path) -> Path:
    """A copy of the installed package, on a path of its own."""
    site = project.python.parent.parent / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    shutil.copytree(site / PACKAGE, folder / "copy" / PACKAGE)
    return folder / "copy"
