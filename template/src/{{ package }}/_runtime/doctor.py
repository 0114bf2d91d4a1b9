# Owned by the project template; changed only by `copier update`.
"""Would the plugin work here? Everything that decides it, on one page."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import Any

from . import compatibility, libtriton, loader, policy, switch
from .pipeline import describe
from .policy import PACKAGE, PluginError

TARGETS = ("cuda:90", "hip:gfx942")


def examine() -> dict[str, Any]:
    """The facts, as JSON can hold them. `ok` says whether the plugin would work.

    Never raises: what cannot be found out is reported as such.
    """
    triton = libtriton.find()
    library = compatibility.library_path()
    report: dict[str, Any] = {
        "package": PACKAGE,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": f"{platform.system()} {platform.machine()}",
        "torch": _version_of("torch"),
        "triton": f"{triton.version} ({triton.directory})" if triton else None,
        "libtriton_llvm": libtriton.llvm_commit(triton.library) if triton else None,
        "library": str(library),
        "record": _ask(lambda: compatibility.read_record(library)),
        "policy": _ask(policy.resolve),
        "checks": _ask(lambda: [check._asdict() for check in compatibility.checks(library)]),
        "entry_points": _entry_points(),
    }
    try:
        plugin = loader.load()
        failed = plugin.self_test()
        if failed:
            raise PluginError(f"The self-test across the border fails: {'; '.join(failed)}. Build {PACKAGE} again.")
        report["registered"] = {"passes": plugin.passes, "dialects": plugin.dialects, "ops": plugin.ops}
        with switch.enabled():
            report["pipeline"] = {target: describe(target) for target in TARGETS}
            configuration = switch.current()
            report["cache_key"] = configuration.key if configuration else None
        report["gpu"] = _gpu()
        report["problem"] = None
    except Exception as error:
        report["problem"] = f"{error}" if isinstance(error, PluginError) else f"{type(error).__name__}: {error}"
    report["ok"] = report["problem"] is None
    return report


def _ask(question: Any) -> Any:
    try:
        return question()
    except Exception as error:
        return f"unknown: {error}"


def _version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _entry_points() -> list[str]:
    """Entry points of any package that are named after Triton, plugins or TLX."""
    points = [point for package in importlib.metadata.distributions() for point in package.entry_points]
    words = ("triton", "tlx", "plugin")
    return sorted(
        {
            f"{point.group}: {point.name} = {point.value}"
            for point in points
            if any(word in point.group.lower() for word in words[:2])
            or ("triton" in point.value.lower() and any(word in point.name.lower() for word in words))
        }
    )


def _gpu() -> str | None:
    from triton.runtime import driver

    try:
        target = driver.active.get_current_target()
    except Exception:
        return None
    return f"{target.backend}:{target.arch}"


def render(report: dict[str, Any]) -> str:
    """The report for a person."""
    lines = []
    for key in ("python", "platform", "torch", "triton", "libtriton_llvm", "library", "policy", "gpu", "cache_key"):
        lines.append(f"{key.replace('_', ' '):<15}{report.get(key) or 'none'}")
    lines.append("\nbuild record")
    record = report["record"]
    lines += [f"  {key:<13}{value}" for key, value in record.items()] if isinstance(record, dict) else [f"  {record}"]
    lines.append("\nchecks")
    for check in report["checks"] if isinstance(report["checks"], list) else []:
        verdict = "ok  " if check["ok"] else "FAIL"
        lines.append(
            f"  {verdict} {check['name']}: {check['found']}" + ("" if check["ok"] else f", not {check['wanted']}")
        )
    if report["entry_points"]:
        lines += ["\nentry points", *(f"  {point}" for point in report["entry_points"])]
    if "registered" in report:
        lines.append("\nregistered")
        lines += [f"  {kind:<9} {', '.join(names) or 'none'}" for kind, names in report["registered"].items()]
    for target, stages in report.get("pipeline", {}).items():
        lines.append(f"\npipeline for {target}")
        for stage, names in stages.items():
            lines += [f"  {stage}", *(f"    {'+ ' if ': ' in name else '  '}{name}" for name in names)]
    lines.append(f"\n{'works here' if report['ok'] else 'does not work here: ' + report['problem']}")
    return "\n".join(lines)
