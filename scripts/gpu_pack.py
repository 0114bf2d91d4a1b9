"""Packs what a machine with a GPU needs to run scripts/gpu_checks.py, under 64 MB.

    .venv/bin/python scripts/gpu_pack.py WHEEL [build/gpu]

WHEEL is a Triton wheel for the other machine's Python (cp312-abi3 for 3.12 and
later). The folder gets: triton.tar.xz, for a folder on PYTHONPATH; the plugin of
the default answers and one of other names, each as its package, its tests and
its benchmarks; a plugin that the wheel carries; and the checks. The other machine
needs no compiler and no package index, only Python, PyTorch and pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import projects

# Of no use for compiling and launching on one NVIDIA GPU with ptxas of its own.
LEFT_OUT = (
    "triton/backends/nvidia/lib/cupti",
    "triton/_C/libproton.so",
    "triton/instrumentation/",
    "triton/plugins/",
    "triton/include/",
    "triton/backends/nvidia/bin/ptxas-blackwell",
    "triton/backends/nvidia/bin/cuobjdump",
    "triton/backends/nvidia/bin/nvdisasm",
    "triton/backends/amd/lib/",
)

SECOND = {"project_name": "second-plugin", "package": "second_plugin", "dialect": "second"}
# What tools/add.py adds to the first one, of every kind.
GROWN = (
    "pass fold_scale",
    "pass spread_out --level ttgir",
    "pass last_mile --level llvm",
    "op square",
    "op gap --form binary",
    "op step --form attribute",
    "op both --form results",
    "type pair",
    "dsl cube",
)
THIRD = {"project_name": "third-plugin", "package": "third_plugin", "dialect": "third"}


def pack_triton(wheel: Path, target: Path) -> None:
    work = target / "unpacked"
    shutil.rmtree(work, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work, [name for name in archive.namelist() if not name.startswith(LEFT_OUT)])
        archive.extract("triton/plugins/libMLIRDialectPlugin.so", target / "wheel-plugin")
    library = target / "libMLIRDialectPlugin.so"
    (target / "wheel-plugin/triton/plugins/libMLIRDialectPlugin.so").rename(library)
    shutil.rmtree(target / "wheel-plugin")
    for path in (work / "triton/_C/libtriton.so", library):
        subprocess.run(["strip", "--strip-unneeded", path], check=True)
    for path in [*(work / "triton/backends/nvidia/bin").iterdir(), work / "triton/FileCheck"]:
        path.chmod(0o755)
    with tarfile.open(target / "triton.tar", "w") as archive:
        archive.add(work, ".")
    subprocess.run(["xz", "-T0", "-6", "-f", target / "triton.tar"], check=True)
    shutil.rmtree(work)


def main() -> int:
    wheel = Path(sys.argv[1])
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else projects.ROOT / "build" / "gpu"
    os.environ["TRITON_LLVM_MATCH"] = projects.match()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    target.mkdir(parents=True, exist_ok=True)
    if not (target / "triton.tar.xz").exists():
        pack_triton(wheel, target)
    for answers in ({}, SECOND, THIRD):
        folder = target.parent / "gpu-projects" / answers.get("dialect", "default")
        project = projects.Project(projects.render(folder / "project", **answers), folder / "environment/bin/python")
        if not answers:
            for kind in GROWN:
                project.run(sys.executable, "tools/add.py", *kind.split())
        projects.environment(folder / "environment")
        project.install()
        site = project.python.parent.parent / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        package = target / "site" / project.package
        shutil.rmtree(package, ignore_errors=True)
        # _native is for this machine's Python; kernels do not need it.
        shutil.copytree(site / project.package, package, ignore=shutil.ignore_patterns("_native*", "__pycache__"))
        shutil.copy(site / f"{project.package}.pth", target / "site")
        if not answers:
            for name in ("tests", "benchmarks", "pyproject.toml"):
                source = project.path / name
                shutil.rmtree(target / "project" / name, ignore_errors=True)
                if source.is_dir():
                    shutil.copytree(source, target / "project" / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(source, target / "project" / name)
    shutil.copy(projects.ROOT / "scripts" / "gpu_checks.py", target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {size / 1e6:.1f} MB")
    return 0 if size < 64e6 else 1


if __name__ == "__main__":
    sys.exit(main())
