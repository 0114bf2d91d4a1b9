"""The six contracts at run time, on a rendered plugin in stock Triton.

Each test runs code in a new interpreter, since what is loaded stays loaded. The
code sees the plugin as `plugin` and helpers of PRELUDE, and puts what it found
into `found`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PACKAGE
from projects import Project

pytestmark = pytest.mark.xdist_group("default")

PRELUDE = f"""
import json, os, sys, threading, warnings
found = {{}}
def kernels():
    sys.path.insert(0, "tests")
    import kernels
    return kernels
def compile(name="copy_kernel", target="cuda:90", signature="*fp32,*fp32,i32,i32", **constants):
    from {PACKAGE}._runtime.compare import compile_kernel
    return compile_kernel(getattr(kernels(), name), signature, {{"BLOCK": 64, **constants}}, target)
def good():
    "The next good kernel in the same process."
    with plugin.enabled():
        return "tanh.approx" in compile("tanh_kernel", PRECISION="approx")["ptx"]
def error_of(function):
    try:
        function()
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
    return None
import {PACKAGE} as plugin
"""


@pytest.fixture
def python(default: Project, tmp_path: Path) -> Callable[..., Any]:
    def run(code: str, *, path: Path | None = None, interpreter: Path | None = None, **environment: str) -> Any:
        base = {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(path or "")}
        done = subprocess.run(
            [interpreter or default.python, "-c", PRELUDE + code + "\nprint(json.dumps(found))"],
            env=os.environ | base | environment,
            cwd=default.path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def copy(default: Project, tmp_path: Path) -> Path:
    """A copy of the installed package that comes before it on the path."""
    site = default.python.parent.parent / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    shutil.copytree(site / PACKAGE, tmp_path / "copy" / PACKAGE)
    return tmp_path / "copy"


def library(copy: Path) -> Path:
    return copy / PACKAGE / f"lib{PACKAGE}.so"


def change_record(copy: Path, **values: Any) -> None:
    path = library(copy).with_suffix(".json")
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def replace_library(copy: Path, data: bytes) -> None:
    import hashlib

    library(copy).write_bytes(data)
    change_record(copy, sha256=hashlib.sha256(data).hexdigest())


def build_library(copy: Path, source: str) -> None:
    path = copy / "fake.c"
    path.write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", path, "-o", copy / "fake.so"], check=True)
    replace_library(copy, (copy / "fake.so").read_bytes())


INFO = """
#include <stdint.h>
#include <stddef.h>
struct info { uint32_t api; const char *name, *version; void *passes; size_t n; void *dialects; size_t m;
              void *ops; size_t k; const char *triton; };
static struct info info = {%s, "fake", "1", 0, 0, 0, 0, 0, 0, %s};
struct info *tritonGetPluginInfo(void) { return &info; }
"""


def edit(copy: Path, name: str, old: str, new: str) -> None:
    path = copy / PACKAGE / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


# What is broken, how, and what the message says.
BROKEN: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "missing": (lambda c: library(c).unlink(), ["No such file", "pip install ."]),
    "empty": (lambda c: replace_library(c, b""), ["0 bytes", "an ELF file", "Reinstall"]),
    "a text file": (lambda c: replace_library(c, b"hello " * 100), ["something else", "an ELF file"]),
    "a folder": (lambda c: (library(c).unlink(), library(c).mkdir()), ["directory"]),
    "truncated": (lambda c: replace_library(c, library(c).read_bytes()[:20_000]), ["size", "Reinstall"]),
    "truncated, the record as it was": (
        lambda c: library(c).write_bytes(library(c).read_bytes()[:-1]),
        ["sha256", "Reinstall"],
    ),
    "another architecture": (
        lambda c: replace_library(c, library(c).read_bytes()[:18] + b"\xf3\x00" + library(c).read_bytes()[20:]),
        ["machine", "243"],
    ),
    "no entry point": (lambda c: build_library(c, "int x;"), ["no entry point tritonGetPluginInfo"]),
    "null version": (lambda c: build_library(c, INFO % (2, 0)), ["tritonVersion is null"]),
    "another API version": (lambda c: build_library(c, INFO % (99, '"3.9.0"')), ["API version 99", "says 2"]),
    "a missing symbol": (
        lambda c: build_library(c, "void mlir_gone(void); void *p = mlir_gone; " + INFO % (2, '"3.9.0"')),
        ["mlir_gone"],
    ),
    "another Triton": (lambda c: change_record(c, triton="3.8.0"), ["found 3.9", "wanted 3.8", "triton~=3.8.0"]),
    "another LLVM": (lambda c: change_record(c, llvm_commit="4" * 40), ["b010a18d", "4" * 40]),
    "a record that hides a near LLVM": (
        lambda c: change_record(c, llvm_match="certainly"),
        ["record says certainly", "Reinstall"],
    ),
    "a failed self-test": (lambda c: change_record(c, self_test="failed: isa"), ["self-test", "failed: isa"]),
    "no record": (lambda c: library(c).with_suffix(".json").unlink(), ["build record", "Reinstall"]),
    "a damaged record": (lambda c: library(c).with_suffix(".json").write_text("{"), ["build record", "cannot be read"]),
    "a record that is a list": (lambda c: library(c).with_suffix(".json").write_text("[]"), ["is damaged"]),
    "a record of another type": (lambda c: change_record(c, plugin_api="2"), ["'plugin_api'", "int"]),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_library_that_does_not_fit_is_refused(python: Callable[..., Any], copy: Path, broken: str) -> None:
    damage, says = BROKEN[broken]
    damage(copy)
    found = python(
        """
found["error"] = error_of(plugin.load)
found["again"] = error_of(plugin.load)
warnings.simplefilter("ignore")
os.environ["MY_TRITON_EXTENSION_POLICY"] = "fallback"
with plugin.enabled(policy="fallback"):
    found["stock"] = "tanh.approx" not in compile("tanh_kernel", PRECISION="approx")["ptx"]
from my_triton_extension._runtime import doctor
report = doctor.examine()
found["doctor"] = report["ok"], report["problem"]
""",
        path=copy,
    )
    assert found["error"].startswith("PluginUnavailable: ")
    assert found["again"] == found["error"]
    for text in says:
        assert text in found["error"]
    assert found["stock"]
    assert found["doctor"][0] is False
    assert found["doctor"][1] in found["error"]


def test_a_triton_without_plugins(python: Callable[..., Any]) -> None:
    found = python(
        """
from triton._C import libtriton
del libtriton.passes.plugin
found["error"] = error_of(plugin.load)
"""
    )
    assert "built without plugins" in found["error"]
    assert "PyPI" in found["error"]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An interpreter that has neither Triton nor torch."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_triton_absent(python: Callable[..., Any], copy: Path, bare: Path) -> None:
    found = python(
        """
found["error"] = error_of(plugin.load)
found["enable"] = error_of(plugin.enable)
from my_triton_extension._runtime import cli
found["doctor"] = cli.main(["doctor"])
""",
        path=copy,
        interpreter=bare,
    )
    assert "Triton: found none" in found["error"]
    assert "pip install 'triton~=3.9.0'" in found["error"]
    assert found["enable"] == found["error"]
    assert found["doctor"] == 1


def test_triton_absent_under_fallback_imports_and_enables(python: Callable[..., Any], copy: Path, bare: Path) -> None:
    found = python(
        """
warnings.simplefilter("ignore")
found["error"] = error_of(lambda: plugin.enable(policy="fallback"))
found["enabled"] = plugin.is_enabled()
found["disable"] = error_of(plugin.disable)
""",
        path=copy,
        interpreter=bare,
    )
    assert found == {"error": None, "enabled": False, "disable": None}


def test_a_broken_triton_is_reported_by_the_doctor(python: Callable[..., Any], copy: Path, bare: Path) -> None:
    package = copy / "triton" / "_C"
    package.mkdir(parents=True)
    (copy / "triton" / "__init__.py").write_text("__version__ = '3.9.0'\n")
    (package / "libtriton.so").write_bytes(b"\x7fELF broken")
    found = python(
        "from my_triton_extension._runtime import doctor; found['report'] = doctor.examine()",
        path=copy,
        interpreter=bare,
    )
    assert found["report"]["ok"] is False
    assert "LLVM in libtriton: found None" in found["report"]["problem"]


def test_the_policy_of_the_call_beats_the_environment_beats_the_answer(python: Callable[..., Any]) -> None:
    code = """
from my_triton_extension._runtime import policy
found["found"] = [policy.resolve(), policy.resolve("error"), policy.resolve("fallback")]
"""
    assert python(code)["found"] == ["error", "error", "fallback"]
    assert python(code, MY_TRITON_EXTENSION_POLICY="fallback")["found"] == ["fallback", "error", "fallback"]


def test_an_unknown_policy_is_an_error(python: Callable[..., Any]) -> None:
    code = """
found["error"] = error_of(plugin.enable)
del os.environ["MY_TRITON_EXTENSION_POLICY"]
found["good"] = good()
"""
    found = python(code, MY_TRITON_EXTENSION_POLICY="maybe")
    assert "MY_TRITON_EXTENSION_POLICY is 'maybe'" in found["error"]
    assert found["good"]


def test_the_fallback_warns_once_and_says_why(python: Callable[..., Any], copy: Path) -> None:
    library(copy).unlink()
    found = python(
        """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    plugin.enable(policy="fallback")
    plugin.enable(policy="fallback", lower_approx_tanh=False)
found["warnings"] = [str(warning.message) for warning in caught if "plugin" in str(warning.message)]
""",
        path=copy,
    )
    assert len(found["warnings"]) == 1
    assert "No such file" in found["warnings"][0]


def test_a_function_without_enable_is_an_error_with_the_line(python: Callable[..., Any]) -> None:
    found = python(
        """
found["error"] = error_of(lambda: compile("tanh_kernel", PRECISION="approx"))
found["good"] = good()
"""
    )
    assert "my_triton_extension is not enabled here" in found["error"]
    assert "approx_tanh(value, precision=PRECISION)" in found["error"]
    assert found["good"]


# ---------------------------------------------------------------- pass order


PLACES = {
    "before an anchor": ('at="end"', 'before="combine"', ["canonicalizer", "+", "combine"]),
    "after an anchor": ('at="end"', 'after="cse"', ["cse", "+", "symbol_dce"]),
    "at the start": ('at="end"', 'at="start"', ["+", "inliner"]),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_pass_runs_where_passes_py_says(python: Callable[..., Any], copy: Path, place: str) -> None:
    old, new, wanted = PLACES[place]
    edit(copy, "passes.py", old, new)
    found = python(
        """
with plugin.enabled():
    found["ttir"] = plugin.describe("cuda:90")["ttir"]
found["good"] = good()
""",
        path=copy,
    )
    names = ["+" if "lower_approx_tanh" in name else name for name in found["ttir"]]
    start = names.index("+") - wanted.index("+")
    assert names[start : start + len(wanted)] == wanted
    assert found["good"]


def test_a_pass_in_llir_runs_at_its_end(python: Callable[..., Any], copy: Path) -> None:
    edit(copy, "passes.py", 'stage="ttir", at="end"', 'stage="llir", at="end"')
    found = python("with plugin.enabled(): found['llir'] = plugin.describe('cuda:90')['llir']", path=copy)
    assert "lower_approx_tanh" in found["llir"][-1]


WRONG_PLACES = {
    "an anchor that does not exist": (
        'at="end"',
        'after="nonsense"',
        ["has no pass 'nonsense'", "inliner, canonicalizer, combine"],
    ),
    "an anchor of another stage": ('at="end"', 'after="coalesce"', ["has no pass 'coalesce'"]),
    "an occurrence that never came": ('at="end"', 'after="cse", occurrence=3', ["ran cse 1 times"]),
    "an ambiguous anchor": (
        'stage="ttir", at="end"',
        'stage="ttgir", after="canonicalizer"',
        ["runs canonicalizer 4 times", "occurrence=1 to 4"],
    ),
    "no such stage": ('stage="ttir", at="end"', 'stage="ptx", at="end"', ["no stage 'ptx'", "ttir, ttgir, llir"]),
    "two places": ('at="end"', 'at="end", after="cse"', ["one of at, before and after"]),
    "a wrong at": ('at="end"', 'at="middle"', ["'start' or 'end'", "'middle'"]),
    "a misspelt pass": (
        'Pass("lower_approx_tanh"',
        'Pass("lower_approx_tan"',
        ["no pass 'my_extension_lower_approx_tan'"],
    ),
}


@pytest.mark.parametrize("wrong", WRONG_PLACES)
def test_a_wrong_place_is_an_error_never_silence(python: Callable[..., Any], copy: Path, wrong: str) -> None:
    old, new, says = WRONG_PLACES[wrong]
    edit(copy, "passes.py", old, new)
    found = python(
        """
def run():
    with plugin.enabled():
        compile()
found["error"] = error_of(run)
compile()  # a stock kernel in the same process
""",
        path=copy,
    )
    assert found["error"].startswith("PluginError: ")
    for text in says:
        assert text in found["error"]


def test_an_occurrence_says_which(python: Callable[..., Any], copy: Path) -> None:
    edit(copy, "passes.py", 'stage="ttir", at="end"', 'stage="ttgir", after="canonicalizer", occurrence=2')
    found = python("with plugin.enabled(): found['ttgir'] = plugin.describe('cuda:90')['ttgir']", path=copy)
    index = next(i for i, name in enumerate(found["ttgir"]) if "lower_approx_tanh" in name)
    assert found["ttgir"][:index].count("canonicalizer") == 2
    assert found["ttgir"][index - 1] == "canonicalizer"


def test_a_pass_is_only_in_the_pipelines_of_its_targets(python: Callable[..., Any], copy: Path) -> None:
    edit(copy, "passes.py", 'at="end"', 'at="end", targets=("hip",)')
    found = python(
        """
with plugin.enabled():
    for target in ("cuda:90", "hip:gfx942"):
        found[target] = any("lower" in name for name in plugin.describe(target)["ttir"])
""",
        path=copy,
    )
    assert found == {"cuda:90": False, "hip:gfx942": True}


SWITCHES = {
    "lower=True": "has no pass 'lower'; it has rewrite_libdevice_tanh, lower_approx_tanh",
    "rewrite_libdevice_tanh='yes'": "takes True, False or a dict",
    "rewrite_libdevice_tanh={'speed': 1}": "has no option 'speed'; it has precision",
    "rewrite_libdevice_tanh={'precision': 1}": "takes str, got 1 of type int",
    "rewrite_libdevice_tanh={'precision': 'rough'}": "choose one of 'approx', 'exact'",
    "lower_approx_tanh={'target': 'cuda:1'}": "has no option 'target'; it has none",
    "rewrite_libdevice_tanh={'precision': object()}": "takes str",
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_wrong_switch_is_an_error(python: Callable[..., Any], switch: str) -> None:
    found = python(f"found['error'] = error_of(lambda: plugin.enable({switch}))\nfound['good'] = good()")
    assert found["error"].startswith("PluginError: ")
    assert SWITCHES[switch] in found["error"]
    assert found["good"]


def test_a_pass_option_reaches_the_pass(python: Callable[..., Any]) -> None:
    found = python(
        """
for precision in ("approx", "exact"):
    with plugin.enabled(rewrite_libdevice_tanh={"precision": precision}):
        found[precision] = "tanh.approx" in compile("libdevice_kernel")["ptx"]
"""
    )
    assert found == {"approx": True, "exact": False}


def test_the_pass_itself_refuses_an_option(python: Callable[..., Any], copy: Path) -> None:
    edit(copy, "passes.py", 'options={"target": TARGET}', 'options={"aim": TARGET}')
    found = python(
        """
def run():
    with plugin.enabled():
        compile()
found["error"] = error_of(run)
""",
        path=copy,
    )
    assert "does not take the option 'aim=cuda:90'" in found["error"]


def test_a_failing_pass_reports_the_kernels_line(python: Callable[..., Any], copy: Path) -> None:
    edit(copy, "passes.py", 'options={"target": TARGET}', 'options={"target": "bogus"}')
    found = python(
        """
def run():
    with plugin.enabled():
        compile("tanh_kernel", PRECISION="approx")
found["error"] = error_of(run)
found["stock"] = "ptx" in compile()
""",
        path=copy,
    )
    assert found["error"].startswith("PluginError: stage ttir for cuda:90 failed")
    assert "unknown target 'bogus'" in found["error"]
    assert re.search(r'tests/kernels.py":\d+:\d+', found["error"])
    assert found["stock"]


# ------------------------------------------------------------- beside others


def test_the_hook_that_was_there_is_kept_called_and_restored(python: Callable[..., Any]) -> None:
    found = python(
        """
from triton import knobs
calls = []
def earlier(self=None, stages=None, options=None, language=None, capability=None):
    calls.append(stages is not None)
    return "earlier-key", "earlier-hash"
knobs.runtime.add_stages_inspection_hook = earlier
plugin.enable()
key, digest = knobs.runtime.add_stages_inspection_hook()
found["both"] = ["earlier-key" in key, "my_triton_extension-" in key, digest.startswith("earlier-hash")]
found["ptx"] = "tanh.approx" in compile("tanh_kernel", PRECISION="approx")["ptx"]
found["called with stages"] = True in calls
plugin.disable()
found["restored"] = knobs.runtime.add_stages_inspection_hook is earlier
"""
    )
    assert found == {"both": [True, True, True], "ptx": True, "called with stages": True, "restored": True}


def test_a_later_hook_that_calls_ours_keeps_both(python: Callable[..., Any]) -> None:
    found = python(
        """
from triton import knobs
plugin.enable()
ours = knobs.runtime.add_stages_inspection_hook
def later(*arguments):
    key, digest = ours(*arguments)
    return key + "later", digest + "later"
knobs.runtime.add_stages_inspection_hook = later
found["ptx"] = "tanh.approx" in compile("tanh_kernel", PRECISION="approx")["ptx"]
plugin.disable()
found["left alone"] = knobs.runtime.add_stages_inspection_hook is later
found["inert"] = later() == ("later", "later")
plugin.enable()
found["again"] = "tanh.approx" in compile("tanh_kernel", PRECISION="approx")["ptx"]
plugin.disable()
found["still theirs"] = knobs.runtime.add_stages_inspection_hook is later
"""
    )
    assert all(found.values()), found


def test_a_later_hook_that_does_not_call_ours_is_noticed(python: Callable[..., Any]) -> None:
    found = python(
        """
from triton import knobs
plugin.enable()
knobs.runtime.add_stages_inspection_hook = lambda *arguments: ("x", "x")
found["error"] = error_of(compile)
plugin.disable()
knobs.runtime.add_stages_inspection_hook = None
found["good"] = good()
"""
    )
    assert "another stages hook" in found["error"]
    assert "enable()" in found["error"]
    assert found["good"]


def test_a_hook_that_raises_is_its_own_error(python: Callable[..., Any]) -> None:
    found = python(
        """
from triton import knobs
def broken(*arguments):
    raise KeyError("theirs")
knobs.runtime.add_stages_inspection_hook = broken
plugin.enable()
found["error"] = error_of(compile)
plugin.disable()
knobs.runtime.add_stages_inspection_hook = None
found["good"] = good()
"""
    )
    assert found == {"error": "KeyError: 'theirs'", "good": True}


def test_enable_and_disable_nest_and_restore(python: Callable[..., Any]) -> None:
    found = python(
        """
from triton import knobs
def state():
    try:
        return "tanh.approx" in compile("libdevice_kernel")["ptx"], plugin.is_enabled()
    finally:
        pass
steps = []
plugin.disable()
steps.append(state())
plugin.enable(rewrite_libdevice_tanh=True)
steps.append(state())
plugin.enable()
steps.append(state())
with plugin.enabled(rewrite_libdevice_tanh=True):
    steps.append(state())
    with plugin.disabled():
        steps.append(state())
    steps.append(state())
plugin.disable()
steps.append(state())
plugin.disable()
steps.append(state())
found["steps"] = steps
found["hook"] = knobs.runtime.add_stages_inspection_hook is None
"""
    )
    on, off, idle = [True, True], [False, False], [False, True]
    assert found["steps"] == [off, on, idle, on, off, on, on, off]
    assert found["hook"]


def test_an_exception_inside_the_with_restores(python: Callable[..., Any]) -> None:
    found = python(
        """
from triton import knobs
def run():
    with plugin.enabled():
        raise ValueError("mine")
found["error"] = error_of(run)
found["restored"] = knobs.runtime.add_stages_inspection_hook is None and not plugin.is_enabled()
"""
    )
    assert found == {"error": "ValueError: mine", "restored": True}


def twin_of(copy: Path, name: str, rename: bool) -> None:
    """A second plugin beside the first, of the same names or of its own."""
    shutil.copytree(copy / PACKAGE, copy / name)
    for suffix in (".so", ".json"):
        (copy / name / f"lib{PACKAGE}{suffix}").rename(copy / name / f"lib{name}{suffix}")
    if rename:
        path = copy / name / f"lib{name}.so"
        # Names of the same length, in place, so that the file stays whole.
        data = path.read_bytes().replace(b"my_extension", b"my_extensiox").replace(b"my-extension", b"my-extensiox")
        replace = json.loads((copy / name / f"lib{name}.json").read_text())
        import hashlib

        path.write_bytes(data)
        (copy / name / f"lib{name}.json").write_text(json.dumps(replace | {"sha256": hashlib.sha256(data).hexdigest()}))
        for source in ("dialects.py", "dsl.py"):
            text = (copy / name / source).read_text()
            (copy / name / source).write_text(text.replace("my_extension", "my_extensiox"))


def test_the_same_plugin_from_two_paths_is_refused(python: Callable[..., Any], copy: Path) -> None:
    twin_of(copy, "twin", rename=False)
    found = python(
        """
import twin
plugin.load()
found["error"] = error_of(twin.load)
found["good"] = good()
""",
        path=copy,
    )
    assert "has registered the pass 'my_extension_" in found["error"]
    assert found["good"]


def test_the_same_dialect_twice_is_refused(python: Callable[..., Any], copy: Path) -> None:
    twin_of(copy, "twin", rename=False)
    found = python(
        """
import twin
from twin._runtime import loader
plugin.load()
from triton._C import libtriton
for name in [name for name in dir(libtriton.passes.plugin) if "my_extension" in name]:
    delattr(libtriton.passes.plugin, name)
for name in [name for name in dir(libtriton.ir.builder) if "my_extension" in name]:
    delattr(libtriton.ir.builder, name)
found["error"] = error_of(twin.load)
""",
        path=copy,
    )
    assert "has registered the dialect 'my_extension'" in found["error"]


@pytest.mark.parametrize("order", [("plugin", "twin"), ("twin", "plugin")])
def test_two_plugins_work_side_by_side(python: Callable[..., Any], copy: Path, order: tuple[str, str]) -> None:
    twin_of(copy, "twin", rename=True)
    found = python(
        f"""
import twin
from triton import knobs
first, second = {order[0]}, {order[1]}
first.enable(rewrite_libdevice_tanh=True)
second.enable()
key, _ = knobs.runtime.add_stages_inspection_hook()
found["keys"] = "my_triton_extension-" in key and "twin-" in key
found["both"] = "tanh.approx" in compile("libdevice_kernel")["ptx"]
first.disable()
found["second"] = "tanh.approx" in compile("libdevice_kernel")["ptx"]
second.disable()
found["none"] = knobs.runtime.add_stages_inspection_hook is not None and first.is_enabled()
with first.enabled(rewrite_libdevice_tanh=True), second.enabled():
    found["with"] = "tanh.approx" in compile("libdevice_kernel")["ptx"]
""",
        path=copy,
    )
    assert found == {"keys": True, "both": True, "second": False, "none": False, "with": True}


def test_beside_the_plugins_that_the_wheel_carries(python: Callable[..., Any]) -> None:
    found = python(
        """
import triton
from pathlib import Path
from triton._C.libtriton import ir, passes
for name in ("libMLIRDialectPlugin.so", "libTritonPluginsTestLib.so"):
    path = str(Path(triton.__file__).parent / "plugins" / name)
    passes.plugin.extend_with(path)
    ir.extend_dialects_with(path)
    ir.builder.extend_with(path)
found["good"] = good()
found["theirs"] = hasattr(passes.plugin, "add_plugingpu_conversion")
"""
    )
    assert found == {"good": True, "theirs": True}


# ------------------------------------------------------------------ the cache


KEY = """
from triton import knobs
with plugin.enabled(%s):
    found["key"] = knobs.runtime.add_stages_inspection_hook()[0]
"""


def test_the_key_is_the_same_in_another_process_and_place(python: Callable[..., Any], copy: Path) -> None:
    here = python(KEY % "")["key"]
    assert here == python(KEY % "", PYTHONHASHSEED="7")["key"]
    assert here == python(KEY % "", path=copy)["key"]


def test_what_changes_the_key(python: Callable[..., Any], copy: Path) -> None:
    keys = {
        "as it is": python(KEY % "", path=copy)["key"],
        "a pass on": python(KEY % "rewrite_libdevice_tanh=True", path=copy)["key"],
        "an option": python(KEY % "rewrite_libdevice_tanh={'precision': 'exact'}", path=copy)["key"],
        "a pass off": python(KEY % "lower_approx_tanh=False", path=copy)["key"],
    }
    edit(copy, "dsl.py", "Hyperbolic tangent of each", "The hyperbolic tangent of each")
    keys["the DSL's source"] = python(KEY % "", path=copy)["key"]
    edit(copy, "passes.py", 'at="end"', 'after="cse"')
    keys["the placement"] = python(KEY % "", path=copy)["key"]
    change_record(copy, version="0.2.0")
    keys["the version"] = python(KEY % "", path=copy)["key"]
    replace_library(copy, library(copy).read_bytes() + b"\0")
    keys["the library"] = python(KEY % "", path=copy)["key"]
    assert len(set(keys.values())) == len(keys), keys


def test_the_hook_returns_a_constant(python: Callable[..., Any]) -> None:
    found = python(
        """
from triton import knobs
with plugin.enabled():
    hook = knobs.runtime.add_stages_inspection_hook
    found["constant"] = hook()[0] is hook()[0]
"""
    )
    assert found["constant"]


def test_the_disk_cache_keeps_configurations_apart(python: Callable[..., Any], tmp_path: Path) -> None:
    code = """
from triton import knobs
hits = []
knobs.compilation.listener = lambda **facts: hits.append(facts["cache_hit"])
compile("libdevice_kernel")                                        # stock
with plugin.enabled():
    compile("libdevice_kernel")                                    # on
with plugin.enabled(rewrite_libdevice_tanh=True):
    compile("libdevice_kernel")                                    # on, another option
compile("libdevice_kernel")                                        # stock again
with plugin.enabled(rewrite_libdevice_tanh=True):
    compile("libdevice_kernel")
with plugin.disabled():
    compile("libdevice_kernel")                                    # off: the stock entry
found["hits"] = hits
"""
    assert python(code)["hits"] == [False, False, False, True, True, True]
    assert python(code)["hits"] == [True] * 6  # all from disk, in another process


def test_stock_kernels_have_stock_keys_with_the_plugin_disabled(python: Callable[..., Any], tmp_path: Path) -> None:
    python("compile()", TRITON_CACHE_DIR=str(tmp_path / "a"))
    python("plugin.load(); plugin.enable(); plugin.disable(); compile()", TRITON_CACHE_DIR=str(tmp_path / "b"))
    python("plugin.enable()\nwith plugin.disabled(): compile()", TRITON_CACHE_DIR=str(tmp_path / "c"))
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in "abc"]
    assert names[0] == names[1] == names[2]


def test_a_cache_that_cannot_be_written_is_only_slower(python: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    assert python("found['good'] = good()", XDG_CACHE_HOME=str(tmp_path / "file"))["good"]


def test_a_damaged_cache_of_commits_is_made_anew(python: Callable[..., Any], tmp_path: Path) -> None:
    cache = tmp_path / "xdg" / "triton-plugins" / "llvm-commits.json"
    cache.parent.mkdir(parents=True)
    for damage in ("{", "[]", '{"x": 1}', ""):
        cache.write_text(damage)
        assert python("found['good'] = good()", XDG_CACHE_HOME=str(tmp_path / "xdg"))["good"]
        assert "b010a18d" in cache.read_text()


def test_a_full_disk_is_an_exception_and_the_next_kernel_compiles(python: Callable[..., Any], tmp_path: Path) -> None:
    found = python(
        """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
plugin.load(); kernels()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
def run():
    with plugin.enabled():
        compile("tanh_kernel", PRECISION="approx")
found["error"] = error_of(run)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
found["good"] = good()
"""
    )
    assert found["error"]
    assert found["good"]


def test_eight_processes_share_one_cache(default: Project, tmp_path: Path) -> None:
    code = PRELUDE + "\nassert good()"
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen([default.python, "-c", code], env=environment, cwd=default.path, stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors.decode()


# ------------------------------------------------------ threads and processes


def test_two_threads_each_get_what_they_asked_for(python: Callable[..., Any]) -> None:
    found = python(
        """
os.environ["TRITON_ALWAYS_COMPILE"] = "1"
plugin.load(); kernels()
barrier = threading.Barrier(2)
results = {True: [], False: []}
def work(on):
    for _ in range(5):
        barrier.wait()
        with plugin.enabled(rewrite_libdevice_tanh=True) if on else plugin.disabled():
            results[on].append("tanh.approx" in compile("libdevice_kernel")["ptx"])
threads = [threading.Thread(target=work, args=(on,)) for on in (True, False)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
found["on"], found["off"] = results[True], results[False]
"""
    )
    assert found == {"on": [True] * 5, "off": [False] * 5}


def test_a_compilation_in_another_thread_of_triton_is_the_callers(python: Callable[..., Any]) -> None:
    found = python(
        """
from concurrent.futures import ThreadPoolExecutor
plugin.enable(rewrite_libdevice_tanh=True)
with ThreadPoolExecutor(4) as pool:
    found["ptx"] = [f.result() for f in [pool.submit(lambda: "tanh.approx" in compile("libdevice_kernel")["ptx"])] * 4]
"""
    )
    assert found["ptx"] == [True] * 4


def test_a_fork_after_loading_works(python: Callable[..., Any]) -> None:
    found = python(
        """
warnings.simplefilter("ignore")
plugin.load(); good()
child = os.fork()
if child == 0:
    os._exit(0 if good() and plugin.load() is not None else 1)
found["status"] = os.waitpid(child, 0)[1]
found["good"] = good()
"""
    )
    assert found == {"status": 0, "good": True}


def test_a_fork_while_another_thread_loads_does_not_hang(python: Callable[..., Any]) -> None:
    found = python(
        """
warnings.simplefilter("ignore")
from my_triton_extension._runtime import loader
held = threading.Event()
def hold():
    with loader._lock:
        held.set()
        threading.Event().wait(3)
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    import signal
    signal.alarm(60)
    os._exit(0 if plugin.load() is not None else 1)
found["status"] = os.waitpid(child, 0)[1]
"""
    )
    assert found == {"status": 0}


def test_a_spawned_process_has_what_its_parent_enabled(python: Callable[..., Any]) -> None:
    # As Inductor's workers: new interpreters that import Triton and nothing of ours.
    found = python(
        """
import subprocess
plugin.enable(rewrite_libdevice_tanh={"precision": "exact"})
code = "import triton, json; from triton import knobs; hook = knobs.runtime.add_stages_inspection_hook; "
code += "print(hook()[0] if hook else None)"
from triton import knobs
found["parent"] = knobs.runtime.add_stages_inspection_hook()[0]
found["child"] = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
plugin.disable()
found["after"] = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
"""
    )
    assert found["child"] == found["parent"]
    assert found["after"] == "None"


def test_the_dsl_is_importable_as_tritons_in_a_new_process(default: Project) -> None:
    code = f"""
from triton.language.extra.{PACKAGE} import approx_tanh as published
from {PACKAGE} import approx_tanh
print(published is approx_tanh, published.__module__)
"""
    done = default.run("python", "-c", code, cwd="/")
    assert done.stdout.split() == ["True", f"triton.language.extra.{PACKAGE}"]


def test_starting_python_imports_nothing_of_the_plugin(default: Project) -> None:
    code = f"import sys; print([name for name in sys.modules if name.startswith(('{PACKAGE}', 'triton'))])"
    assert default.run("python", "-c", code, cwd="/").stdout.strip() == "[]"


def test_torch_compile_learns_of_every_change(python: Callable[..., Any]) -> None:
    # Found on a GPU: an option changed between two compilations gave the old kernel.
    found = python(
        """
import torch
import torch._inductor.async_compile as asynchronous
from torch._inductor.codecache import PyCodeCache
from torch.compiler import config
def fill():
    asynchronous.CompiledTritonKernels._cache["source"] = "an old kernel"
    PyCodeCache.modules_no_attr["path"] = sys
def state():
    emptied = not asynchronous.CompiledTritonKernels._cache and not PyCodeCache.modules_no_attr
    return emptied, config.cache_key_tag
states = []
config.cache_key_tag = "theirs"
for change in (plugin.enable, lambda: plugin.enable(rewrite_libdevice_tanh=True), plugin.disable, plugin.disable):
    fill()
    change()
    states.append(state())
found["emptied"] = [emptied for emptied, _ in states]
found["tags"] = [tag for _, tag in states]
"""
    )
    assert found["emptied"] == [True] * 4
    one, other, again, none = found["tags"]
    assert one == again
    assert one != other
    assert none == "theirs"
    assert all(tag.startswith("theirs,my_triton_extension-") for tag in (one, other))


def test_the_shape_of_the_api_in_review_upstream(python: Callable[..., Any]) -> None:
    # triton pull request 11167: one extend_with, and a module of passes for each plugin.
    found = python(
        """
import types
from triton._C import libtriton
passes, ir = libtriton.passes, libtriton.ir
steps = [passes.plugin.extend_with, ir.extend_dialects_with, ir.builder.extend_with]
calls = []
def extend_with(path):
    calls.append(path)
    [step(path) for step in steps]
    module = types.ModuleType("libtriton.passes.my_triton_extension")
    for name in [name for name in dir(passes.plugin) if "my_extension" in name]:
        setattr(module, name, getattr(passes.plugin, name))
    passes.my_triton_extension = module
    del libtriton.passes.plugin
libtriton.extend_with = extend_with
found["good"] = good()
found["calls"] = len(calls)
with plugin.enabled():
    found["ttir"] = plugin.describe("cuda:90")["ttir"][-1]
"""
    )
    assert found["good"]
    assert found["calls"] == 1
    assert found["ttir"] == "my_triton_extension: my_extension_lower_approx_tanh"
