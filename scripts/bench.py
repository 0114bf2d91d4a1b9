"""How long the steps of a plugin's author take, against their targets.

    make bench

Prints a table; nothing is asserted, since times are the machine's. The last part is
a rendered project's own benchmark, with and without the plugin in turns.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import projects
from rich.console import Console
from rich.table import Table

table = Table("step", "measured", "target")


def row(step: str, measured: str, target: str) -> None:
    table.add_row(step, measured, target)
    print(f"{step}: {measured}", flush=True)


def seconds(step: str, target: str, function, rounds: int = 1) -> None:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    row(step, f"{statistics.median(times):.1f} s", target)


def updates(folder: Path) -> Callable[[], None]:
    """Gives what updates a project, each time to a version that has one line more."""

    def git(where: Path, *arguments: str) -> None:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=where, check=True, capture_output=True)

    def release(where: Path, version: str) -> None:
        git(where, "add", "-A")
        git(where, "commit", "--allow-empty", "-m", version)
        git(where, "tag", "--force", version)

    template, project = folder / "template", folder / "updated"
    git(folder, "clone", str(projects.ROOT), str(template))
    release(template, "1.0.0")
    copier = Path(sys.executable).parent / "copier"
    subprocess.run([copier, "copy", "--quiet", "--defaults", template, project], check=True, capture_output=True)
    git(project, "init")
    release(project, "rendered")
    versions = iter(range(1, 10))

    def update() -> None:
        subprocess.run([copier, "update", "--quiet", "--defaults"], cwd=project, check=True, capture_output=True)

    def prepare_and_update() -> None:
        version = f"1.{next(versions)}.0"
        with (template / "template/cmake/TritonLLVM.cmake").open("a") as file:
            file.write(f"# {version}\n")
        release(template, version)
        update()
        release(project, version)

    return prepare_and_update


def main() -> int:
    os.environ["TRITON_LLVM_MATCH"] = projects.match()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folder = projects.ROOT / "build" / "bench"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    command = [Path(sys.executable).parent / "copier", "copy", "--quiet", "--defaults", "--overwrite"]
    seconds(
        "render (copier copy)",
        "2 s",
        lambda: subprocess.run([*command, projects.ROOT, folder / "rendered"], check=True, capture_output=True),
        3,
    )
    seconds("update to another version (copier update)", "5 s", updates(folder), 3)
    growing = projects.render(folder / "growing")
    numbers = iter(range(3))
    add = [sys.executable, "tools/add.py", "pass"]
    seconds("add a pass", "2 s", lambda: subprocess.run([*add, f"rewrite{next(numbers)}"], cwd=growing, check=True), 3)
    project = projects.Project(projects.render(folder / "project"), projects.environment(folder / "environment"))
    project.run(sys.executable, "tools/toolchain.py", "fetch")
    build = ("-Ceditable.rebuild=true", "-Cbuild-dir=build/editable", "--editable")
    seconds("first full build", "60 s", lambda: project.install(*build))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    row("largest process of it", f"{peak:.2f} GiB", "two at once: under 3 GiB")

    source = project.path / "lib" / "MyExtension" / "LowerApproxTanh.cpp"
    text = source.read_text()
    load = f"import {project.package} as plugin; plugin.load()"
    times = []
    for number in range(3):
        source.write_text(text.replace("signalPassFailure();", f"signalPassFailure(); // {number}"))
        started = time.perf_counter()
        project.run("python", "-c", load, cwd="/")
        times.append(time.perf_counter() - started)
    row("rebuild after editing one pass", f"{statistics.median(times):.1f} s", "4 s")
    pytest = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    seconds("the project's tests, on the CPU", "60 s", lambda: project.run(*pytest))
    durations = project.run(*pytest, "--durations=0", "-vv", "-k", "test_lowering").stdout
    calls = [
        float(line.split("s ")[0]) for line in durations.splitlines() if " call " in line and "test_lowering[" in line
    ]
    row("one .mlir test, once loaded", f"{1000 * statistics.median(calls):.0f} ms", "50 ms")
    if "--with-demo" in sys.argv:
        seconds(
            "make demo, caches warm", "120 s", lambda: subprocess.run(["make", "demo"], cwd=projects.ROOT, check=True)
        )

    Console(width=100).print(table)
    # Installed as its users have it: an editable one would look for changes first.
    print(projects.project(folder / "installed").run("python", "benchmarks/run.py", "--rounds", "9").stdout)
    print("targets: import 10 ms; load 5 ms; hook call 0.3 us; compile, cold 1.05; launch 1.05")
    return 0


if __name__ == "__main__":
    sys.exit(main())
