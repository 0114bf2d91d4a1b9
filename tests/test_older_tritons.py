"""The runtime on stock Triton 3.7.1 and 3.8.0, with plugins that somebody else built.

Those wheels bring two plugins. One of them stands in for the rendered project's
library, with a build record of its own: what is tested is the loading protocol, the
names, the pipeline, the hook and the keys, not the library.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import projects
import pytest
from filelock import FileLock

PACKAGE = "my_triton_extension"
LLVM = {
    "3.7.1": "1f126a6dea50d185c0781743a667390037ae88bd",
    "3.8.0": "5f07f818b51b786b0a87b4e514882600ecba112f",
    "3.9.0": "b010a18d2b648cab83c83967ff26b8fde11acdc6",
}


def stock(*requirements: str) -> Path:
    """A folder with packages from PyPI, kept between runs: one Triton is 1 GB."""
    folder = projects.ROOT / "build" / "-".join(requirements).replace("==", "-")
    folder.parent.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *requirements]
            subprocess.run(pip, check=True)
            (folder / "done").touch()
    return folder


@pytest.fixture(scope="module", params=LLVM)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def wheel(version: str) -> Path:
    if version == "3.9.0":
        import importlib.util

        spec = importlib.util.find_spec("triton")
        assert spec is not None
        assert spec.origin is not None
        return Path(spec.origin).parent
    return stock(f"triton=={version}") / "triton"


@pytest.fixture
def run(tmp_path: Path, version: str) -> Callable[..., Any]:
    return runner(tmp_path, version)


def runner(tmp_path: Path, version: str, *also: Path) -> Callable[..., Any]:
    """Runs code beside a stock Triton, in an environment where the plugin is installed."""
    python = projects.environment(tmp_path / "environment")
    site = python.parent.parent / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    if version != "3.9.0":
        (site / "outer.pth").unlink()  # it has Triton 3.9
    rendered = projects.render(tmp_path / "project")
    shutil.copytree(rendered / "src" / PACKAGE, site / PACKAGE)
    shutil.copy(rendered / "src" / f"{PACKAGE}.pth", site)
    library = site / PACKAGE / f"lib{PACKAGE}.so"
    shutil.copy(wheel(version) / "plugins" / "libMLIRDialectPlugin.so", library)
    record = {
        "version": "0.1.0",
        "triton": version,
        "llvm_commit": LLVM[version],
        "llvm_match": "exact",
        "compiler": "of the wheel",
        "plugin_api": 2,
        "sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
        "self_test": "passed",
    }
    library.with_suffix(".json").write_text(json.dumps(record))
    # That library's one pass is plugingpu_conversion.
    (site / PACKAGE / "dialects.py").write_text('NAME = "plugingpu"\nPRECISION = {}\n')
    (site / PACKAGE / "passes.py").write_text(
        "from ._runtime.pipeline import Pass\n\n"
        'PIPELINE = (Pass("conversion", stage="ttir", after="cse"),)\n'
    )  # fmt: skip

    def execute(code: str, **environment: str) -> Any:
        paths = [str(path) for path in also]
        if version != "3.9.0":
            paths.append(str(wheel(version).parent))
        done = subprocess.run(
            [python, "-c", "import json, os, sys\nfound = {}\n" + code + "\nprint(json.dumps(found))"],
            env=os.environ | {"PYTHONPATH": ":".join(paths), "TRITON_CACHE_DIR": str(tmp_path / "cache")} | environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return execute


STATE = f"""
from {PACKAGE}._runtime import loader
found["same"] = plugin.load() is plugin.load()
found["pass"] = loader.find_adder("plugingpu_conversion") is not None
with plugin.enabled():
    found["ttir"] = plugin.describe("cuda:90")["ttir"]
with plugin.disabled():
    from triton import knobs
    found["off"] = knobs.runtime.add_stages_inspection_hook()
"""


def check(found: dict[str, Any]) -> None:
    assert found["pass"]
    assert found["same"]
    position = found["ttir"].index(f"{PACKAGE}: plugingpu_conversion")
    assert found["ttir"][position - 1] == "cse"


def test_the_plugin_first(run: Callable[..., Any]) -> None:
    found = run(f"import {PACKAGE} as plugin\nplugin.load()\nimport triton" + STATE)
    check(found)
    assert found["off"] == ["", ""]


def test_triton_first(run: Callable[..., Any]) -> None:
    check(run(f"import triton\nimport triton._C.libtriton\nimport {PACKAGE} as plugin" + STATE))


def test_a_new_process_that_imports_triton_only(run: Callable[..., Any]) -> None:
    found = run(
        f"""
import subprocess
code = "import triton; import {PACKAGE} as plugin; plugin.load(); print('loaded')"
found["child"] = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
"""
    )
    assert found == {"child": "loaded\n"}


def test_the_key_knows_whether_the_plugin_is_on(run: Callable[..., Any]) -> None:
    found = run(
        f"""
import triton
import {PACKAGE} as plugin
with plugin.enabled():
    found["on"] = triton.knobs.runtime.add_stages_inspection_hook()
with plugin.enabled(conversion=False):
    found["without"] = triton.knobs.runtime.add_stages_inspection_hook()
with plugin.disabled():
    found["off"] = triton.knobs.runtime.add_stages_inspection_hook()
"""
    )
    assert len({str(value) for value in found.values()}) == 3


def test_the_doctor_finds_all_but_the_self_test(run: Callable[..., Any], version: str) -> None:
    found = run(f"from {PACKAGE}._runtime import doctor\nfound.update(doctor.examine())")
    # The library that stands in has none, which is the one thing wrong here.
    assert "tritonPluginSelfTest" in found["problem"]
    assert [check for check in found["checks"] if not check["ok"]] == []
    assert found["triton"].startswith(version)
    assert found["libtriton_llvm"] == LLVM[version]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_fresh_worker_loads_it_too(run: Callable[..., Any], tmp_path: Path, method: str) -> None:
    site = next(tmp_path.glob("environment/lib/*/site-packages"))
    (site / "worker.py").write_text(
        f"def passes(_):\n    import {PACKAGE} as plugin\n    return list(plugin.load().passes)\n"
    )
    found = run(
        f"""
import multiprocessing, worker
import triton
import {PACKAGE} as plugin
found["here"] = list(plugin.load().passes)
with multiprocessing.get_context("{method}").Pool(2) as pool:
    found["there"] = pool.map(worker.passes, range(2))
"""
    )
    assert found["there"] == [found["here"]] * 2
    assert found["here"]


def test_the_policy_decides_where_it_does_not_fit(run: Callable[..., Any], tmp_path: Path, version: str) -> None:
    record = next(tmp_path.glob(f"environment/lib/*/site-packages/{PACKAGE}/lib{PACKAGE}.json"))
    record.write_text(record.read_text().replace(LLVM[version], "4" * 40))
    code = f"""
import warnings
import {PACKAGE} as plugin
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        plugin.enable()
        found["enabled"] = plugin.is_enabled()
    except plugin.PluginUnavailable as error:
        found["error"] = str(error)
found["warned"] = [str(warning.message) for warning in caught]
"""
    refused = run(code)
    assert "4" * 40 in refused["error"]
    fallen = run(code, MY_TRITON_EXTENSION_POLICY="fallback")
    assert fallen["enabled"] is False
    assert any("running without the plugin" in text for text in fallen["warned"])


def test_the_llvm_commit_is_read_from_the_library(run: Callable[..., Any], version: str) -> None:
    found = run(
        f"""
from {PACKAGE}._runtime import libtriton
triton = libtriton.find()
found["is"] = [triton.version, libtriton.llvm_commit(triton.library), triton.reads_paths]
"""
    )
    assert found["is"] == [version, LLVM[version], version != "3.9.0"]


def test_the_opt_out_leaves_an_older_triton_alone(tmp_path: Path) -> None:
    found = runner(tmp_path, "3.8.0")(
        f"""
import triton
from triton._C.libtriton import passes
found["loaded"] = hasattr(passes.plugin, "plugingpu_conversion")
import {PACKAGE} as plugin
try:
    plugin.load()
except plugin.PluginUnavailable as error:
    found["error"] = str(error)
""",
        MY_TRITON_EXTENSION_AUTOLOAD="0",
    )
    assert found["loaded"] is False
    assert "TRITON_PLUGIN_PATHS" in found["error"]
    assert "load() first" in found["error"]


def test_a_library_that_does_not_fit_does_not_end_an_older_triton(tmp_path: Path) -> None:
    execute = runner(tmp_path, "3.8.0")
    record = next(tmp_path.glob(f"environment/lib/*/site-packages/{PACKAGE}/lib{PACKAGE}.json"))
    record.write_text(record.read_text().replace("3.8.0", "3.7.1"))
    found = execute(
        f"""
import triton
import {PACKAGE} as plugin
try:
    plugin.load()
except plugin.PluginUnavailable as error:
    found["error"] = str(error)
"""
    )
    assert "found 3.8, wanted 3.7" in found["error"]


@pytest.mark.parametrize("first", [PACKAGE, "utlx_plugin"])
def test_beside_the_published_utlx(tmp_path: Path, first: str) -> None:
    utlx = stock("triton-utlx==3.8.0.post16")
    site = tmp_path / "environment" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    execute = runner(tmp_path, "3.8.0", utlx)
    # As installed: its .pth file too.
    (site / "utlx.pth").write_text(f"import site; site.addsitedir({str(utlx)!r})\n")
    second = "utlx_plugin" if first == PACKAGE else PACKAGE
    found = execute(
        f"""
try:
    import {first}
    import {second}
except ImportError as error:  # uTLX's Python side wants torch; its library does not
    found["import"] = str(error)
import triton
import {PACKAGE} as plugin
"""
        + STATE
        + """
from triton._C.libtriton import ir, passes
found["theirs"] = [name for name in dir(passes.plugin) if not name.startswith("_")]
"""
    )
    check(found)
    assert "uTLX" in found["off"][0]  # their hook is called, with ours off too
    assert len(found["theirs"]) > 1, found["theirs"]
