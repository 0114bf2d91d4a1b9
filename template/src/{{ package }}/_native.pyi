# Owned by the project template; changed only by `copier update`.
"""Triton's and the plugin's dialects and passes on MLIR text, in this process."""

class PipelineError(RuntimeError):
    """What MLIR said of text that does not parse, verify or pass."""

def bind(get_plugin_info: int, self_test: int) -> None:
    """Takes the addresses of the loaded library's functions."""

def self_test() -> list[str]:
    """The checks across the border to libtriton that do not hold."""

def print_passes() -> None:
    """Prints what a pipeline may name, in MLIR's own form."""

def run_pipeline(text: str, pipeline: str, filename: str = "<string>") -> str:
    """Runs a textual pipeline on MLIR text and returns the resulting text.

    Raises PipelineError, with the diagnostics, if it does not parse, verify or pass.
    """

def run_pipeline_with_log(
    text: str,
    pipeline: str,
    filename: str = "<string>",
    verify_diagnostics: bool = False,
    print_after_all: bool = False,
    timing: bool = False,
) -> tuple[str, str]:
    """The same; returns the resulting text and the diagnostics."""
