"""From nothing to a plugin that changes a kernel: what `make demo` shows."""

from __future__ import annotations

import os
import shutil
import sys
import time

import projects
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax

KERNEL = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    inner = 0.7978845608 * (value + 0.044715 * value * value * value)
    tl.store(y + offsets, 0.5 * value * (1 + libdevice.tanh(inner)), mask=offsets < n)
"""

console = Console(width=110)


def step(title: str) -> None:
    console.print(f"\n[bold]{title}[/bold]")


def main() -> int:
    match = projects.match()
    os.environ["TRITON_LLVM_MATCH"] = match
    folder = projects.ROOT / "build" / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    step("1. Render a project:  copier copy --defaults <template> my-triton-extension")
    project = projects.Project(projects.render(folder / "my-triton-extension"), projects.environment(folder / "venv"))
    console.print(f"   {sum(1 for path in project.path.rglob('*') if path.is_file())} files in {project.path}")

    step("2. Find or fetch the LLVM of the installed Triton:  python tools/toolchain.py fetch")
    if match == "nearest":
        console.print("   Triton's store cannot be reached: taking Debian's packages (TRITON_LLVM_MATCH=nearest).")
        console.print("   They are near Triton's LLVM and not the same; the build is marked so.")
    project.run(sys.executable, "tools/toolchain.py", "fetch", capture_output=False)

    step("3. Build and install it:  pip install .")
    started = time.monotonic()
    project.install()
    console.print(f"   {time.monotonic() - started:.0f} s")

    step("4. Load it into stock Triton:  python -m my_triton_extension doctor")
    doctor = project.run("python", "-m", project.package, "doctor").stdout
    wanted = ("triton ", "libtriton", "  llvm_match", "  self_test", "  passes", "  dialects", "  ops", "works here")
    for line in doctor.splitlines():
        if line.startswith(wanted):
            console.print(f"   {line}", highlight=False)

    step("5. A kernel that calls libdevice's tanh, and its TTIR and assembly without and with the plugin")
    (folder / "gelu.py").write_text(KERNEL)
    console.print(Syntax(KERNEL, "python", theme="ansi_dark", background_color="default"))
    show = ["python", "-m", project.package, "inspect", folder / "gelu.py:gelu"]
    show += ["--signature", "*fp32,*fp32,i32", "--constexpr", "BLOCK=1024", "--enable", "rewrite_libdevice_tanh"]
    for target, assembly, marker in (("cuda:90", "ptx", "tanh.approx.f32"), ("hip:gfx942", "amdgcn", "v_exp_f32")):
        diff = project.run(*show, "--target", target).stdout
        stages = {part.split(",", 1)[0].removeprefix("--- "): part for part in diff.split("\n\n--- ")}
        console.print(
            Panel(
                Syntax(stages["ttir"], "diff", theme="ansi_dark", background_color="default", word_wrap=True),
                title=f"{target}, ttir",
            )
        )
        lines = stages[assembly].splitlines()
        gone = sum(line.startswith("-") for line in lines)
        new = [line for line in lines if line.startswith("+")]
        console.print(f"   {assembly}: {gone} lines gone, {len(new)} new")
        shown = [line for line in new if marker in line]
        if not shown:
            console.print(f"[red]the assembly for {target} has no {marker}[/red]")
            return 1
        console.print(f"   {shown[0].strip()}", highlight=False)
    page = folder / "gelu.html"
    project.run(*show, "--html", page)
    console.print(f"\n   Every stage side by side: {page}")
    print("\ndemo: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
