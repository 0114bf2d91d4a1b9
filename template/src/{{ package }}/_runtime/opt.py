# Owned by the project template; changed only by `copier update`.
"""Runs passes on MLIR text in this process; no wheel ships triton-opt."""

from __future__ import annotations

from .loader import native
from .policy import PluginError

_SEPARATOR = "// -----\n"


def run(
    text: str,
    pipeline: str,
    *,
    filename: str = "<string>",
    split: bool = False,
    verify_diagnostics: bool = False,
    print_after_all: bool = False,
    timing: bool = False,
) -> tuple[str, str]:
    """The text that `pipeline` makes of `text`, and what was printed on the way.

    text: MLIR with Triton's and the plugin's dialects.
    pipeline: a textual pipeline of MLIR's common passes, Triton's passes on TTIR
        and TritonGPU, and the plugin's: "builtin.module(canonicalize,cse)".
    split: whether "// -----" lines separate inputs of their own.
    Raises PluginError with the diagnostics (file, line and caret).
    """
    module = native()
    outputs, logs, errors = [], [], []
    line = 0
    for part in text.split(_SEPARATOR) if split else [text]:
        try:
            # Blank lines in front, so that diagnostics count from the file's start.
            output, log = module.run_pipeline_with_log(
                "\n" * line + part, pipeline, filename, verify_diagnostics, print_after_all, timing
            )
            outputs.append(output)
            logs.append(log)
        except module.PipelineError as error:
            errors.append(str(error).strip())
        line += part.count("\n") + 1
    if errors:
        raise PluginError("\n".join(errors))
    return _SEPARATOR.join(outputs), "".join(logs)


def print_passes() -> None:
    """Prints the passes that a pipeline may name, with their options."""
    native().print_passes()
