"""Writes the pages and pictures of docs/ that are made from what they are about.

    .venv/bin/python scripts/generate.py

docs/anchors.md from the installed Triton, docs/questions.md from copier.yml,
docs/commands.md from the commands' own help, docs/pictures/*.svg by pictures.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from itertools import groupby
from typing import Any

import pictures
import projects
import yaml

TARGETS = ["cuda:80", "cuda:90", "cuda:100", "cuda:120", "hip:gfx942", "hip:gfx950"]
STAGES = {"ttir": "Triton IR", "ttgir": "TritonGPU IR", "llir": "LLVM IR"}


def anchors(project: projects.Project) -> str:
    """The passes of each stage and target, as Triton runs them."""
    code = f"""
import json
from {project.package}._runtime import libtriton, pipeline
found = {{target: pipeline.anchors(target) for target in {TARGETS}}}
print(json.dumps([libtriton.find().version, found]))
"""
    version, found = yaml.safe_load(project.run("python", "-c", code).stdout)
    lines = [
        "# Triton's pipelines and their anchors",
        "",
        f"What stock Triton {version} runs for an empty kernel, stage by stage: the names that `before` and",
        "`after` take in `passes.py`. A name with a number runs that many times, so it needs an",
        "`occurrence`. `python -m <package> doctor` shows the same for the Triton that is installed,",
        "with the plugin's passes among them.",
        "",
        "Passes come and go from one release to the next; `tools/new_triton.py compare` tells what changed.",
    ]
    for stage, title in STAGES.items():
        lines += ["", f"## {stage}: {title}"]
        by_sequence: dict[tuple[str, ...], list[str]] = {}
        for target in TARGETS:
            by_sequence.setdefault(tuple(found[target][stage]), []).append(target)
        for sequence, targets in by_sequence.items():
            lines += ["", f"**{', '.join(targets)}**", ""]
            for name, run in groupby(sequence):
                count, times = sequence.count(name), len(list(run))
                numbered = f" ({count} times in the stage)" if count > 1 else ""
                lines += [f"1. `{name}`{numbered}"] * times
    return "\n".join(lines) + "\n"


def questions() -> str:
    settings = yaml.safe_load((projects.ROOT / "copier.yml").read_text())
    lines = [
        "# The questions",
        "",
        "`copier copy --defaults` answers all of them; `--data name=value` answers one. An answer that would",
        "not work is refused where it is given, with the reason.",
        "",
        "| name | question | choices | default |",
        "| --- | --- | --- | --- |",
    ]
    for name, question in settings.items():
        if name.startswith("_") or question.get("when") is False:
            continue
        lines.append(f"| `{name}` | {question['help']} | {choices(question)} | {default(question)} |")
    lines += [
        "",
        "Lists are written as YAML: `--data 'components=[pass, dialect]'`.",
        "",
        "- Names are lower-case ASCII words; those that Python, C++, CMake, MLIR or Triton use are refused.",
        "- `dsl` needs `dialect`: a function for kernels creates an op.",
        "- Answers are changed later by [an update](updating.md#other-answers).",
    ]
    return "\n".join(lines) + "\n"


def choices(question: dict[str, Any]) -> str:
    given = question.get("choices")
    if isinstance(given, dict):
        return ", ".join(f"`{value}`" for value in given.values())
    return ", ".join(f"`{value}`" for value in given or [])


def default(question: dict[str, Any]) -> str:
    value = question["default"]
    if isinstance(value, list):
        return ", ".join(f"`{item}`" for item in value)
    if "{{" in str(value):
        return "from the others"
    return f"`{value}`" if value else "nothing"


COMMANDS = [
    ["python", "-m", "{package}", "doctor"],
    ["python", "-m", "{package}", "opt"],
    ["python", "-m", "{package}", "inspect"],
    ["python", "tools/add.py"],
    ["python", "tools/toolchain.py"],
    ["python", "tools/new_triton.py", "compare"],
    ["python", "tools/new_triton.py", "add"],
    ["python", "tools/new_triton.py", "propose"],
    ["python", "benchmarks/run.py"],
]


def commands(project: projects.Project) -> str:
    lines = [
        "# The commands of a rendered project",
        "",
        "What each says of itself with `--help`. Those of `tools/` run in a checkout, the others wherever the",
        "package is installed.",
    ]
    for command in COMMANDS:
        real = [part.format(package=project.package) for part in command]
        shown = " ".join(part.format(package="<package>") for part in command)
        text = project.run(*real, "--help", env={"COLUMNS": "100", "PYTHON_COLORS": "0"}).stdout
        text = text.replace(project.package, "<package>").replace(str(project.path), ".")
        lines += ["", f"## {shown}", "", "```text", text.rstrip(), "```"]
    lines += [
        "",
        "Without options of their own: `python tools/develop.py` installs the project such that an import",
        "rebuilds it, `python tools/line.py <line>` makes the checkout build for another line of Triton, and",
        "`python tools/release.py <tag> <folder>` tells whether what is in a folder may be released.",
    ]
    return "\n".join(lines) + "\n"


def everything(project: projects.Project) -> dict[str, str]:
    """The texts by their path below docs/; `project` has the default answers and is installed."""
    pages = {"anchors.md": anchors(project), "questions.md": questions(), "commands.md": commands(project)}
    return pages | {f"pictures/{name}": text for name, text in pictures.all_pictures(project).items()}


def main() -> int:
    os.environ["TRITON_LLVM_MATCH"] = projects.match()
    folder = projects.ROOT / "build" / "generate"
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in everything(projects.project(folder)).items():
        path = projects.ROOT / "docs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
