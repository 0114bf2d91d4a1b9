# Owned by the project template; changed only by `copier update`.
"""A kernel's stages with the plugin on and off, side by side."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from . import switch
from .policy import ENVIRONMENT, PluginError

STAGES = ("source", "ttir", "ttgir", "llir", "ptx", "amdgcn")


def compile_kernel(kernel: Any, signature: str, constants: dict[str, Any], target: str) -> dict[str, str]:
    """The stages of a kernel, as text, compiled for `target` without a GPU.

    kernel: a function decorated with triton.jit.
    signature: the types of its arguments that are not constants, separated by
        commas, as in "*fp32,*fp32,i32".
    constants: the values of its constexpr arguments.
    target: as in "cuda:90" or "hip:gfx942".
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = [part.strip() for part in signature.split(",") if part.strip()]
    names = [name for name in kernel.arg_names if name not in constants]
    if len(types) != len(names):
        raise PluginError(
            f"{kernel.__name__} takes {', '.join(names)}; the signature has {len(types)} types: {signature!r}"
        )
    described = dict.fromkeys(constants, "constexpr") | dict(zip(names, types, strict=True))
    ordered = {name: described[name] for name in kernel.arg_names}
    aligned = {
        (index,): [["tt.divisibility", 16]] for index, kind in enumerate(ordered.values()) if kind.startswith("*")
    }
    vendor, _, arch = target.partition(":")
    gpu = GPUTarget(vendor, int(arch), 32) if vendor == "cuda" else GPUTarget(vendor, arch, 64)
    compiled = triton.compile(
        ASTSource(kernel, ordered, constants, aligned), target=gpu, options={"enable_fp_fusion": True}
    )
    return {stage: str(compiled.asm[stage]) for stage in STAGES if stage in compiled.asm}


def normalise(text: str) -> str:
    """Text without source locations, which change with every edited line."""
    text = re.sub(r" ?loc\((?:[^()]|\([^()]*\))*\)", "", text)
    text = re.sub(r"^#loc.*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"^[ \t]*(?:\.loc|\.file)\b.*\n?", "", text, flags=re.MULTILINE)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip() + "\n"


def read_kernel(where: str) -> Any:
    """The kernel named as "path/to/file.py:kernel"."""
    path, _, name = where.rpartition(":")
    spec = importlib.util.spec_from_file_location("inspected", path) if path else None
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise PluginError(f"{where!r} names no kernel; give it as path/to/file.py:kernel")
    module = importlib.util.module_from_spec(spec)
    sys.modules["inspected"] = module
    spec.loader.exec_module(module)
    kernel = getattr(module, name, None)
    if not hasattr(kernel, "arg_names"):
        raise PluginError(f"{path} has no kernel {name!r} (a function decorated with triton.jit)")
    return kernel


def read_constants(pairs: list[str]) -> dict[str, Any]:
    """Values given as NAME=VALUE; what is no Python literal is a string."""
    constants = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            constants[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            constants[name] = value
    return constants


def both(kernel: Any, signature: str, constants: dict[str, Any], target: str, switches: dict[str, Any]) -> Any:
    """Pairs of stages, off and on, by stage; with the plugin off the DSL falls back."""
    import os

    variable = f"{ENVIRONMENT}_POLICY"
    before = os.environ.get(variable)
    os.environ[variable] = "fallback"
    try:
        with switch.disabled():
            off = compile_kernel(kernel, signature, constants, target)
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before
    with switch.enabled(policy="error", **switches):
        on = compile_kernel(kernel, signature, constants, target)
    return {stage: (normalise(off.get(stage, "")), normalise(on[stage])) for stage in on}


def as_text(stages: dict[str, tuple[str, str]]) -> str:
    """A unified diff of each stage, from off to on."""
    parts = []
    for stage, (off, on) in stages.items():
        lines = difflib.unified_diff(
            off.splitlines(), on.splitlines(), f"{stage}, plugin off", f"{stage}, plugin on", "", ""
        )
        parts.append("\n".join(line.rstrip() for line in lines) or f"--- {stage}: the same, plugin on or off")
    return "\n\n".join(parts)


def as_html(title: str, stages: dict[str, tuple[str, str]]) -> str:
    """One self-contained page, the differences marked."""
    differ = difflib.HtmlDiff(wrapcolumn=90)
    page = differ.make_file([], [], charset="utf-8")
    tables = [
        f"<h2>{stage}</h2>"
        + differ.make_table(off.splitlines(), on.splitlines(), "plugin off", "plugin on", context=True, numlines=4)
        for stage, (off, on) in stages.items()
    ]
    head = page.partition("<body>")[0].replace("<title></title>", f"<title>{title}</title>")
    return f"{head}<body>\n<h1>{title}</h1>\n" + "\n".join(tables) + "\n</body>\n</html>\n"
