# Owned by the project template; changed only by `copier update`.
"""The commands of `python -m <package>`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .policy import PACKAGE, PluginError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {PACKAGE}", description=f"Commands of {PACKAGE}.")
    commands = parser.add_subparsers(required=True, metavar="command")

    doctor = commands.add_parser("doctor", help="say whether the plugin works here, and why not")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=_doctor)

    opt = commands.add_parser("opt", help="run passes on MLIR text, as triton-opt does")
    opt.add_argument("file", nargs="?", default="-", help="an .mlir file; default: standard input")
    opt.add_argument("--pipeline", default="builtin.module()", help="as in 'builtin.module(canonicalize,cse)'")
    opt.add_argument(
        "--split-input-file", action="store_true", help="treat what '// -----' separates as inputs of their own"
    )
    opt.add_argument(
        "--verify-diagnostics", action="store_true", help="compare diagnostics with expected-error comments"
    )
    opt.add_argument("--print-ir-after-all", action="store_true", help="print the IR after each pass")
    opt.add_argument("--mlir-timing", action="store_true", help="print how long each pass takes")
    opt.add_argument("--list-passes", action="store_true", help="list the passes that a pipeline may name")
    opt.set_defaults(run=_opt)

    inspect = commands.add_parser("inspect", help="compare a kernel's stages with the plugin on and off")
    inspect.add_argument("kernel", help="path/to/file.py:kernel")
    inspect.add_argument("--signature", required=True, help="types of the arguments, as in '*fp32,*fp32,i32'")
    inspect.add_argument("--constexpr", action="append", default=[], metavar="NAME=VALUE")
    inspect.add_argument("--enable", action="append", default=[], metavar="PASS", help="switch a pass on")
    inspect.add_argument("--target", default="cuda:90", help="as in cuda:90 or hip:gfx942")
    inspect.add_argument("--html", type=Path, help="write a page instead of text")
    inspect.set_defaults(run=_inspect)

    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        return status
    except (PluginError, OSError, UnicodeDecodeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _doctor(options: Any) -> int:
    from . import doctor

    report = doctor.examine()
    print(json.dumps(report, indent=2) if options.json else doctor.render(report))
    return 0 if report["ok"] else 1


def _opt(options: Any) -> int:
    from . import opt

    if options.list_passes:
        opt.print_passes()
        return 0
    data = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
    output, log = opt.run(
        data.decode("utf-8"),
        options.pipeline,
        filename="<stdin>" if options.file == "-" else options.file,
        split=options.split_input_file,
        verify_diagnostics=options.verify_diagnostics,
        print_after_all=options.print_ir_after_all,
        timing=options.mlir_timing,
    )
    sys.stderr.write(log)
    sys.stdout.write(output)
    return 0


def _inspect(options: Any) -> int:
    from . import compare

    kernel = compare.read_kernel(options.kernel)
    stages = compare.both(
        kernel,
        options.signature,
        compare.read_constants(options.constexpr),
        options.target,
        dict.fromkeys(options.enable, True),
    )
    if options.html:
        options.html.write_text(compare.as_html(f"{kernel.__name__} for {options.target}", stages), encoding="utf-8")
        print(f"wrote {options.html}")
    else:
        print(compare.as_text(stages))
    return 0
