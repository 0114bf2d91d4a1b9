"""The guide's pictures: docs/pictures/*.svg, readable in light and in dark.

What stands in them is real: the IR is that of `inspect`, the figures those of
docs/gpu-h200.json.
"""

from __future__ import annotations

import json
import re
from html import escape

import projects

STYLE = """
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328; }
.small { font-size: 11px; }
.tiny { font-size: 9.5px; }
.title { font-weight: bold; }
.quiet { fill: #59636e; }
.box { fill: #f6f8fa; stroke: #818b98; }
.ours { fill: #ddf4ff; stroke: #0969da; }
.line { stroke: #818b98; fill: none; }
.dash { stroke-dasharray: 5 4; }
.gone { fill: #cf222e; }
.new { fill: #116329; }
.bar { fill: #818b98; }
.bar.ours { fill: #0969da; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .box { fill: #151b23; stroke: #656c76; }
  .ours { fill: #121d2f; stroke: #4493f8; }
  .line { stroke: #656c76; }
  .gone { fill: #ff7b72; }
  .new { fill: #7ee787; }
  .bar { fill: #656c76; }
  .bar.ours { fill: #4493f8; }
}
"""


class Picture:
    """An SVG that grows by boxes, lines of text and arrows; units are pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}" xml:space="preserve">{escape(text)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{kind}"/>')
        first = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 18 * number, line, "" if number else "title", "middle")

    def arrow(self, x1: float, y1: float, x2: float, y2: float, label: str = "", kind: str = "") -> None:
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="line {kind}" marker-end="url(#tip)"/>'
        )
        if label:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 6, label, "small quiet", "middle")

    def bar(self, x: float, y: float, width: float, height: float, kind: str = "") -> None:
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" class="bar {kind}"/>')

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0L8 4L0 8z" class="bar"/></marker></defs>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def stages_of(difference: str) -> dict[str, list[str]]:
    """The lines of each stage's difference, from what `inspect` prints."""
    parts = re.split(r"^--- (\w+),.*\n", difference, flags=re.MULTILINE)
    return {stage: text.splitlines() for stage, text in zip(parts[1::2], parts[2::2], strict=True)}


def kernel(difference: str) -> Picture:
    """The stages, the passes in their places, and a kernel's IR before and after."""
    picture = Picture(860, 470, "What a plugin does to a kernel")
    for x, name in ((10, "Python"), (185, "ttir"), (475, "ttgir"), (625, "llir"), (765, "ptx")):
        picture.text(x + 42, 22, name, "title", "middle")
    picture.box(10, 34, 85, 74, "kernel", "tanh(x)")
    picture.box(125, 34, 205, 74, kind="box")
    for number, (name, kind) in enumerate(
        [("inliner", "box"), ("rewrite", "ours"), ("combine", "box"), ("lower", "ours")]
    ):
        picture.box(131 + 49.5 * number, 52, 44, 38, kind=kind)
        picture.text(153 + 49.5 * number, 75, name, "tiny", "middle")
    for x, width, text in ((390, 190, "Triton's passes"), (610, 110, "Triton's"), (750, 100, "assembly")):
        picture.box(x, 34, width, 74, text)
    for left, right in ((95, 125), (330, 390), (580, 610), (720, 750)):
        picture.arrow(left, 71, right, 71)
    picture.text(227, 128, "blue: this plugin's passes", "small quiet", "middle")

    y = 162
    for stage in ("ttir", "ptx"):
        lines = [shorten(line) for line in stages_of(difference)[stage] if re.match(r"[+-](?![+-]{2})\s*\S", line)]
        picture.text(10, y, f"{stage}, without (-) and with (+) the plugin", "title")
        gone = [line for line in lines if line[0] == "-"]
        new = [line for line in lines if line[0] == "+"]
        # Of the assembly, what computes the hyperbolic tangent.
        telling = [line for line in gone if re.search("extern|ex2|rcp|bra", line)][:3]
        for shown, kind in ((telling, "gone"), ([line for line in new if "tanh" in line][:3], "new")):
            for line in shown:
                y += 18
                picture.text(22, y, line, f"small {kind}")
        y += 36
    picture.height = y
    return picture


def shorten(line: str, width: int = 112) -> str:
    line = re.sub(r"\s+", " ", line)
    return line if len(line) <= width else f"{line[: width - 4]} ..."


def border() -> Picture:
    picture = Picture(860, 300, "The border between a plugin and libtriton")
    picture.box(10, 40, 380, 240, kind="ours")
    picture.text(200, 62, "lib<package>.so: the plugin", "title", "middle")
    picture.box(470, 40, 380, 240)
    picture.text(660, 62, "libtriton.so: Triton, MLIR, LLVM", "title", "middle")
    rows = [
        ("tritonGetPluginInfo()", "extend_with(path)", False, "a table of passes, dialects, ops"),
        ("ops, passes, patterns", "registries, pass managers", True, "MLIR symbols, bound when it loads"),
        ("inlined MLIR code", "the same code, compiled in", True, "must be of the same LLVM commit"),
        ("trait and type ids", "trait and type ids", True, "the same spelling: clang on both sides"),
        ("tritonPluginSelfTest()", "tools/finish_build.py", False, "whether all of that holds"),
    ]
    for number, (ours, theirs, to_right, label) in enumerate(rows):
        y = 84 + 38 * number
        picture.box(24, y, 210, 28, ours)
        picture.box(626, y, 210, 28, theirs)
        left, right = (240, 620) if to_right else (620, 240)
        picture.arrow(left, y + 16, right, y + 16, label)
    return picture


def loading() -> Picture:
    picture = Picture(860, 330, "How a plugin is loaded, at the first use")
    steps = [
        ("import <package>", "imports neither Triton nor torch"),
        ("enable()", "sets the hook, which keeps the one it found"),
        ("the first kernel", "asks for the plugin, in any thread, once a process"),
        ("is Triton there?", "version, plugins compiled in: no import yet"),
        ("does the record fit?", "LLVM commit, plugin API, sha256 of the library"),
        ("dlopen, extend_with", "only now; an error is a Python exception"),
        ("stages run", "with the passes of passes.py in their places"),
    ]
    for number, (name, text) in enumerate(steps):
        y = 10 + 45 * number
        picture.box(10, y, 220, 32, name, kind="ours" if number in (3, 4) else "box")
        picture.text(250, y + 21, text)
        if number:
            picture.arrow(120, y - 13, 120, y)
    picture.text(620, 195, "no: PluginUnavailable, or", "gone")
    picture.text(620, 213, "Triton's own operations,", "gone")
    picture.text(620, 231, "as the policy says", "gone")
    return picture


def benchmark(rows: list[tuple[str, float, float]]) -> Picture:
    """GELU with and without the plugin, on one H200; time relative to stock Triton."""
    picture = Picture(860, 60 + 62 * len(rows), "GELU on an H200: time with the plugin, relative to stock Triton")
    picture.text(10, 22, "GELU on 2^26 float32, NVIDIA H200, time relative to stock Triton", "title")
    for number, (name, stock, ours) in enumerate(rows):
        y = 44 + 62 * number
        picture.text(10, y + 26, name)
        for step, (time, kind, label) in enumerate(((stock, "", "stock"), (ours, "ours", "plugin"))):
            width = 480 * time / stock
            picture.bar(190, y + 24 * step, width, 18, kind)
            picture.text(196 + width, y + 14 + 24 * step, f"{time:.3f} ms, {label}", "small")
    return picture


def all_pictures(project: projects.Project) -> dict[str, str]:
    """The pictures by file name; `project` is one of the default answers, installed."""
    show = ["python", "-m", project.package, "inspect", "tests/kernels.py:libdevice_kernel", "--target", "cuda:90"]
    show += ["--signature", "*fp32,*fp32,i32,i32", "--constexpr", "BLOCK=1024", "--enable", "rewrite_libdevice_tanh"]
    pictures = {
        "kernel": kernel(project.run(*show).stdout),
        "border": border(),
        "loading": loading(),
        "benchmark": benchmark(measured()),
    }
    return {f"{name}.svg": picture.svg() for name, picture in pictures.items()}


def measured() -> list[tuple[str, float, float]]:
    """Name, time without and with the plugin in ms, from docs/gpu-h200.json."""
    found = json.loads((projects.ROOT / "docs" / "gpu-h200.json").read_text())
    rows = found["checks"]["gain"]["found"].items()
    return [(f"{n} times in registers", row["libdevice ms"], row["rewritten ms"]) for n, row in rows]
