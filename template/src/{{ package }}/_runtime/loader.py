# Owned by the project template; changed only by `copier update`.
"""Loads the library into Triton: once a process, from any thread."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from . import compatibility, libtriton
from .policy import PACKAGE, PluginUnavailable


class Plugin(NamedTuple):
    """A loaded plugin: its library and what it registered."""

    path: Path
    record: dict[str, Any]
    library: ctypes.CDLL
    passes: tuple[str, ...]
    dialects: tuple[str, ...]
    ops: tuple[str, ...]

    def take_errors(self) -> str:
        """What MLIR reported in this thread's last pipeline with a pass of this plugin."""
        return (_text(self.library, "tritonPluginTakeErrors") or "").strip()

    def self_test(self) -> list[str]:
        """The names of the checks across the border to libtriton that do not hold."""
        failed: list[str] = []
        report = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int)(
            lambda name, held: failed.append(name.decode()) if held == 0 else None
        )
        self.library.tritonPluginSelfTest(report)
        return failed


def _text(library: ctypes.CDLL, name: str) -> str | None:
    """What the library's function `name` returns; None where it has no such function."""
    function = getattr(library, name, None)
    if function is None:
        return None
    function.restype = ctypes.c_char_p
    return (function() or b"").decode(errors="replace")


class _Pass(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("rest", ctypes.c_void_p * 3))


class _Dialect(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("rest", ctypes.c_void_p * 2))


class _Op(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("rest", ctypes.c_void_p * 1))


class _PluginInfo(ctypes.Structure):
    """`PluginInfo` of triton/Tools/PluginUtils.h, plugin API version 2."""

    _fields_ = (
        ("api_version", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("passes", ctypes.POINTER(_Pass)),
        ("num_passes", ctypes.c_size_t),
        ("dialects", ctypes.POINTER(_Dialect)),
        ("num_dialects", ctypes.c_size_t),
        ("ops", ctypes.POINTER(_Op)),
        ("num_ops", ctypes.c_size_t),
        ("triton_version", ctypes.c_char_p),
    )


_lock = threading.Lock()
_loaded: Plugin | None = None
_failure: PluginUnavailable | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it


os.register_at_fork(after_in_child=_after_fork)


def load() -> Plugin:
    """Loads the plugin into Triton, which is imported if it is not yet.

    Returns the same object however often and from whatever thread it is called.
    Raises PluginUnavailable, with what was found and what is wanted, where the
    library does not fit; nothing was registered then.
    """
    global _loaded, _failure
    if _loaded is None:
        with _lock:
            if _loaded is None:
                if _failure is not None:  # asking again would give the same answer
                    raise PluginUnavailable(*_failure.args)
                try:
                    _loaded = _load()
                except PluginUnavailable as error:
                    _failure = error
                    raise
    return _loaded


def _load() -> Plugin:
    path, record = compatibility.verify()
    register = _protocol()
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise PluginUnavailable(f"{path} cannot be opened: {error}. Build {PACKAGE} for this Triton.") from error
    info = _info(library, path)
    plugin = Plugin(
        path,
        record,
        library,
        _names(info.passes, info.num_passes, path),
        _names(info.dialects, info.num_dialects, path),
        _names(info.ops, info.num_ops, path),
    )
    if info.api_version != record["plugin_api"]:
        raise PluginUnavailable(
            f"{path} has plugin API version {info.api_version}, its record says {record['plugin_api']}. "
            f"Reinstall {PACKAGE}."
        )
    if (match := _text(library, "tritonPluginLLVMMatch")) not in (None, record["llvm_match"]):
        raise PluginUnavailable(
            f"{path} was built with {match} LLVM, its record says {record['llvm_match']}. Reinstall {PACKAGE}."
        )
    if not info.triton_version:
        raise PluginUnavailable(f"{path} does not say which Triton it is for (tritonVersion is null). Build it again.")
    register(plugin)
    return plugin


def _info(library: ctypes.CDLL, path: Path) -> _PluginInfo:
    try:
        entry = library.tritonGetPluginInfo
    except AttributeError:
        raise PluginUnavailable(f"{path} has no entry point tritonGetPluginInfo. Build it again.") from None
    entry.restype = ctypes.POINTER(_PluginInfo)
    return entry().contents  # type: ignore[no-any-return]


def _names(table: Any, count: int, path: Path) -> tuple[str, ...]:
    names = [table[i].name for i in range(count)]
    if None in names:
        raise PluginUnavailable(f"{path} registers something without a name. Look at Plugin.def and build it again.")
    return tuple(name.decode() for name in names)


def _protocol() -> Callable[[Plugin], None]:
    """How this Triton loads plugins, found by asking what it has."""
    installed = libtriton.find()
    if "triton" not in sys.modules and installed is not None and installed.reads_paths:
        offer_path()
    try:
        from triton._C import libtriton as binding
    except ImportError as error:
        raise PluginUnavailable(f"import triton fails: {error}. Reinstall Triton.") from error
    passes, ir = binding.passes, binding.ir
    if hasattr(binding, "extend_with"):
        steps = [binding.extend_with]
    elif hasattr(passes, "plugin") and hasattr(passes.plugin, "extend_with"):
        steps = [passes.plugin.extend_with, ir.extend_dialects_with, ir.builder.extend_with]
    elif hasattr(passes, "plugin"):
        return _registered_by_path
    else:
        raise PluginUnavailable(
            "This Triton was built without plugins (it has no passes.plugin). Install the wheel from PyPI, 3.7 or later."
        )

    def register(plugin: Plugin) -> None:
        _refuse_collisions(plugin, passes.plugin if hasattr(passes, "plugin") else passes, ir.builder)
        try:
            for step in steps:
                step(str(plugin.path))
        except RuntimeError as error:
            raise PluginUnavailable(
                f"Triton refuses {plugin.path}: {error}. Build {PACKAGE} for this Triton."
            ) from error

    return register


def offer_path() -> None:
    """Has a Triton that is about to be imported load the library, if it fits.

    One that does not fit would end the process; load() says what is wrong with it.
    """
    try:
        library, _ = compatibility.verify()
    except PluginUnavailable:
        return
    path = str(library)
    paths = [entry for entry in os.environ.get("TRITON_PLUGIN_PATHS", "").split(":") if entry]
    if path not in paths:
        os.environ["TRITON_PLUGIN_PATHS"] = ":".join([path, *paths])


def _registered_by_path(plugin: Plugin) -> None:
    if str(plugin.path) not in os.environ.get("TRITON_PLUGIN_PATHS", "").split(":") or any(
        find_adder(name) is None for name in plugin.passes
    ):
        raise PluginUnavailable(
            f"This Triton reads TRITON_PLUGIN_PATHS while it is imported, and was imported before {PACKAGE} could set it. "
            f"Import {PACKAGE} and call load() first, or set TRITON_PLUGIN_PATHS={plugin.path}."
        )


def _refuse_collisions(plugin: Plugin, passes: Any, builder: Any) -> None:
    """A name that is taken would be replaced in silence, or end the process."""
    for kind, names, taken in (
        ("pass", plugin.passes, lambda name: hasattr(passes, f"add_{name}")),
        ("op", plugin.ops, lambda name: hasattr(builder, f"create_{name}")),
        ("dialect", plugin.dialects, _other_dialects(plugin.path).__contains__),
    ):
        for name in names:
            if taken(name):
                raise PluginUnavailable(
                    f"Another plugin in this process has registered the {kind} {name!r}, which {plugin.path} brings too. "
                    "Rename one of them, or load only one."
                )


def _other_dialects(own: Path) -> set[str]:
    """The dialects of the plugin libraries that this process has open."""
    dialects: set[str] = set()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        mapped = {line[line.index("/") :].strip() for line in maps if "r-xp" in line and "/" in line}
    for name in mapped:
        # A plugin is neither the system's nor a module of Python's, and asking takes time.
        ruled_out = name.startswith(("/lib", "/usr/lib")) or ".cpython-" in name or ".so" not in name
        if not ruled_out and not _same_file(name, own):
            try:
                library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
                info = _info(library, Path(name))
                dialects.update(_names(info.dialects, info.num_dialects, Path(name)))
            except (OSError, PluginUnavailable):
                continue  # not a plugin
    return dialects


def _same_file(name: str, own: Path) -> bool:
    try:
        return os.path.samefile(name, own)
    except OSError:
        return False


def find_adder(name: str) -> Callable[..., None] | None:
    """Triton's function that adds the pass `name` of this plugin to a pass manager."""
    from triton._C.libtriton import passes

    for module in (getattr(passes, PACKAGE, None), getattr(passes, "plugin", None)):
        for attribute in (f"add_{name}", name):
            if adder := getattr(module, attribute, None):
                return adder  # type: ignore[no-any-return]
    return None


def native() -> Any:
    """The module `_native`, bound to the loaded plugin.

    Raises PluginUnavailable where it was not built for this Python.
    """
    plugin = load()
    try:
        from .. import _native
    except ImportError as error:
        raise PluginUnavailable(
            f"{PACKAGE}._native cannot be imported: {error}. It is built for one version of Python; install the wheel for "
            "this one. Kernels do not need it."
        ) from error

    def address(name: str) -> int:
        return ctypes.cast(getattr(plugin.library, name), ctypes.c_void_p).value or 0

    _native.bind(address("tritonGetPluginInfo"), address("tritonPluginSelfTest"))
    return _native
