# Owned by the project template; changed only by `copier update`.
"""Makes the plugin known to processes that somebody else starts.

The .pth file of this package asks `find_spec` about two modules:

- triton.language.extra.<package>, under which torch.compile imports the DSL
  functions of a kernel, in workers that never import this package;
- triton itself: a Triton that reads TRITON_PLUGIN_PATHS while it is imported (3.7
  and 3.8) is given the library then, unless <PACKAGE>_AUTOLOAD is 0; and after it
  the plugin is enabled as the parent process had it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

PACKAGE = __name__.partition(".")[0]
MODULE = f"triton.language.extra.{PACKAGE}"


class _Published(importlib.abc.Loader):
    """Loads the DSL under Triton's name for it."""

    def exec_module(self, module: ModuleType) -> None:
        from importlib import import_module

        dsl = import_module(f"{PACKAGE}.dsl")
        names = dsl.__all__
        module.__dict__.update({name: getattr(dsl, name) for name in names}, __all__=names)


class _Then(importlib.abc.Loader):
    """Loads a module as usual, and does something after."""

    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self.loader, self.then = loader, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        self.then()


def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """The import system's question about `name`; None for what is not ours."""
    if name == MODULE:
        return importlib.machinery.ModuleSpec(name, _Published())
    if name != "triton":
        return None
    from . import libtriton

    installed = libtriton.find()
    if installed is not None and installed.reads_paths and os.environ.get(f"{PACKAGE.upper()}_AUTOLOAD") != "0":
        from .loader import offer_path

        offer_path()
    if f"{PACKAGE.upper()}_ENABLED" in os.environ:
        spec = importlib.machinery.PathFinder.find_spec("triton", sys.path)
        if spec is not None and spec.loader is not None:
            from .switch import enable_as_parent

            spec.loader = _Then(spec.loader, enable_as_parent)
        return spec
    return None


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return find_spec(name) if name == MODULE else None


def install() -> None:
    """Answers for the DSL's module in this process, without the .pth file too."""
    if not any(finder is _Finder for finder in sys.meta_path):
        sys.meta_path.append(_Finder)


def function(python: Callable[..., Any]) -> Any:
    """Makes a function of kernels out of a Python function with `_semantic`.

    torch.compile copies only functions whose module is Triton's.
    """
    from functools import wraps

    from triton import knobs
    from triton.language import core

    install()
    builtin = core.builtin(python)

    @wraps(builtin)
    def call(*arguments: Any, **options: Any) -> Any:
        # The interpreter provides it only to functions of triton.language itself.
        if options.get("_semantic") is None and knobs.runtime.interpret:
            from triton.runtime.interpreter import interpreter_semantic

            options["_semantic"] = interpreter_semantic
        return builtin(*arguments, **options)

    call.__module__ = MODULE
    return call
