# Owned by the project template; changed only by `copier update`.
"""Puts the plugin's passes where passes.py says, and proves that they ran."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .loader import Plugin, find_adder
from .policy import PACKAGE, PluginError

STAGES = ("ttir", "ttgir", "llir")


class _Target:
    """Stands for the GPU that is compiled for, as in "cuda:90" or "hip:gfx942"."""

    def __repr__(self) -> str:
        return "TARGET"  # the same in every process: it joins the cache key


TARGET = _Target()


@dataclass(frozen=True)
class Option:
    """A pass option: its type, its default, and the values it may have, if few."""

    type: type
    default: object = None
    choices: tuple[object, ...] = ()

    def check(self, where: str, value: object) -> object:
        if type(value) is not self.type:
            raise PluginError(f"{where} takes {self.type.__name__}, got {value!r} of type {type(value).__name__}")
        if self.choices and value not in self.choices:
            raise PluginError(f"{where} is {value!r}; choose one of {', '.join(map(repr, self.choices))}")
        return value


@dataclass(frozen=True)
class Pass:
    """A pass of the plugin and its place in Triton's pipeline.

    name: as in Plugin.def, without the dialect's prefix.
    stage: "ttir", "ttgir" or "llir".
    at, before, after: one of them: at="start" or at="end" of the stage, or
        before or after one of Triton's passes, named as in `describe()`.
    occurrence: which one, from 1, where the stage runs the anchor several times.
    targets: the backends it is for, "cuda" and "hip".
    enabled: whether it runs unless enable() says otherwise.
    options: its options; a value of TARGET is filled in for each compilation.
    """

    name: str
    stage: str
    at: str | None = None
    before: str | None = None
    after: str | None = None
    occurrence: int | None = None
    targets: tuple[str, ...] = ("cuda", "hip")
    enabled: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise PluginError(f"pass {self.name}: there is no stage {self.stage!r}; choose one of {', '.join(STAGES)}")
        if sum(place is not None for place in (self.at, self.before, self.after)) != 1:
            raise PluginError(f"pass {self.name}: give one of at, before and after")
        if self.at not in (None, "start", "end"):
            raise PluginError(f"pass {self.name}: at is 'start' or 'end', not {self.at!r}")

    @property
    def anchor(self) -> str | None:
        return self.before or self.after

    @property
    def place(self) -> str:
        if self.at:
            return f"at the {self.at} of {self.stage}"
        which = f" (occurrence {self.occurrence})" if self.occurrence else ""
        return f"{'before' if self.before else 'after'} {self.anchor}{which} in {self.stage}"


@dataclass(frozen=True)
class Step:
    """A pass that is switched on, with the values of its options."""

    spec: Pass
    name: str  # as registered
    options: tuple[tuple[str, object], ...]

    def add(self, manager: Any, target: str) -> None:
        values = {name: target if value is TARGET else value for name, value in self.options}
        arguments = [f"{name}={_text(value)}" for name, value in values.items()]
        adder = find_adder(self.name)
        if adder is None:
            raise PluginError(f"Triton has no pass {self.name!r}: {PACKAGE} is not loaded, or passes.py misspells it")
        if arguments:
            adder(manager, arguments)
        else:
            adder(manager)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def resolve(pipeline: Sequence[Pass], prefix: str, switches: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps that `switches` turn on: name=True, False, or a dict of options.

    Raises PluginError for an unknown pass or option, and for a value of the
    wrong type.
    """
    known = {spec.name: spec for spec in pipeline}
    if unknown := sorted(switches.keys() - known.keys()):
        raise PluginError(f"{PACKAGE} has no pass {unknown[0]!r}; it has {', '.join(known)}")
    steps = []
    for name, spec in known.items():
        wanted = switches.get(name, spec.enabled)
        if not isinstance(wanted, (bool, Mapping)):
            raise PluginError(f"pass {name} takes True, False or a dict of options, got {wanted!r}")
        if wanted is False:
            continue
        given = wanted if isinstance(wanted, Mapping) else {}
        settable = [key for key, option in spec.options.items() if isinstance(option, Option)]
        if unknown := sorted(given.keys() - set(settable)):
            has = f"it has {', '.join(settable)}" if settable else "it has none"
            raise PluginError(f"pass {name} has no option {unknown[0]!r}; {has}")
        options = {
            key: option.check(f"option {key} of pass {name}", given.get(key, option.default))
            if isinstance(option, Option)
            else option
            for key, option in spec.options.items()
        }
        steps.append(Step(spec, f"{prefix}_{name}", tuple(options.items())))
    return tuple(steps)


class _Stage:
    """One run of one stage: counts Triton's passes and adds the plugin's."""

    def __init__(self, name: str, target: str, steps: Sequence[Step]) -> None:
        self.name, self.target = name, target
        self.steps = [
            step for step in steps if step.spec.stage == name and target.partition(":")[0] in step.spec.targets
        ]
        self.seen: Counter[str] = Counter()
        self.sequence: list[str] = []
        self.started = self.ended = False

    def start(self, manager: Any) -> None:
        if not self.started:
            self.started = True
            self._add(manager, [step for step in self.steps if step.spec.at == "start"])

    def add(self, manager: Any, anchor: str, original: Callable[[], Any]) -> Any:
        """Runs `original`, which adds Triton's pass `anchor`, and adds ours around it."""
        self.start(manager)
        self.seen[anchor] += 1
        here = [
            step
            for step in self.steps
            if step.spec.anchor == anchor and step.spec.occurrence in (None, self.seen[anchor])
        ]
        self._add(manager, [step for step in here if step.spec.before])
        self.sequence.append(anchor)
        result = original()
        self._add(manager, [step for step in here if step.spec.after])
        return result

    def end(self, manager: Any) -> None:
        if not self.ended:
            self.ended = True
            self._add(manager, [step for step in self.steps if step.spec.at == "end"])

    def _add(self, manager: Any, steps: Sequence[Step]) -> None:
        for step in steps:
            self.sequence.append(f"{PACKAGE}: {step.name}")
            step.add(manager, self.target)

    def verify(self) -> None:
        """Raises PluginError for an anchor that did not come by, or came several times."""
        for step in self.steps:
            spec = step.spec
            count = self.seen[spec.anchor] if spec.anchor else 1
            if spec.anchor and count < (spec.occurrence or 1):
                found = f"ran {spec.anchor} {count} times" if count else f"has no pass {spec.anchor!r}"
                raise PluginError(
                    f"pass {spec.name} goes {spec.place}, but that stage {found} for {self.target}. "
                    f"Its anchors are: {', '.join(dict.fromkeys(self.anchors()))}"
                )
            if spec.anchor and count > 1 and spec.occurrence is None:
                raise PluginError(
                    f"pass {spec.name} goes {spec.place}, which runs {spec.anchor} {count} times for {self.target}. Say which "
                    f"with occurrence=1 to {count}; the stage is: {', '.join(self.anchors())}"
                )

    def anchors(self) -> list[str]:
        return [name for name in self.sequence if ": " not in name]


_stage: ContextVar[_Stage | None] = ContextVar(f"{PACKAGE}_stage", default=None)
_trace: ContextVar[dict[str, list[str]] | None] = ContextVar(f"{PACKAGE}_trace", default=None)
_wrapped = False


def wrap_stages(stages: dict[str, Any], target: str, steps: Sequence[Step], plugin: Plugin | None) -> None:
    """Makes Triton's stages run with `steps` in their places."""
    for name in STAGES:
        if name in stages and getattr(stages[name], "plugin", None) != PACKAGE:
            stages[name] = _with_steps(name, stages[name], target, steps, plugin)


def _with_steps(name: str, run: Any, target: str, steps: Sequence[Step], plugin: Plugin | None) -> Any:
    def stage(source: Any, metadata: Any) -> Any:
        state = _Stage(name, target, steps)
        token = _stage.set(state)
        try:
            result = run(source, metadata)
            if name != "llir":  # its result is text
                _run_at_end(state, result)
            state.verify()
        except RuntimeError as error:
            if not isinstance(error, PluginError):
                if plugin and (errors := plugin.take_errors()):
                    raise PluginError(f"stage {name} for {target} failed:\n{errors}") from error
                state.verify()  # a pass that is not there may be why
            raise
        finally:
            _stage.reset(token)
            trace = _trace.get()
            if trace is not None:
                trace[name] = state.sequence
        return result

    stage.plugin = PACKAGE  # type: ignore[attr-defined]
    return stage


def _run_at_end(state: _Stage, module: Any) -> None:
    """Runs what goes at the end in a pass manager of its own.

    A stage may use several; which is the last is only known when it returns.
    """
    if any(step.spec.at == "end" for step in state.steps):
        from triton._C.libtriton import ir

        manager = ir.pass_manager(module.context)
        manager.enable_debug()
        state.end(manager)
        manager.run(module, f"{PACKAGE}_{state.name}")


def wrap_passes() -> None:
    """Lets a running stage see each pass that Triton adds, and each pass manager run.

    Done once; where no stage of ours runs, the functions do what they did.
    """
    global _wrapped
    if _wrapped:
        return
    _wrapped = True
    from triton._C import libtriton

    for module in _pass_modules(libtriton):
        for attribute in dir(module):
            if attribute.startswith("add_"):
                setattr(module, attribute, _wrap(getattr(module, attribute), attribute.removeprefix("add_")))
    original = libtriton.ir.pass_manager.run

    def run(manager: Any, *arguments: Any) -> Any:
        state = _stage.get()
        if state is not None:
            state.start(manager)
            if state.name == "llir":  # becomes LLVM IR next, so its end is here
                state.end(manager)
        return original(manager, *arguments)

    libtriton.ir.pass_manager.run = run


def _pass_modules(module: ModuleType, inside: bool = False) -> Iterator[ModuleType]:
    for name in dir(module):
        child = getattr(module, name)
        own = isinstance(child, ModuleType) and child.__name__ == f"{module.__name__}.{name}"
        if own and name not in ("plugin", PACKAGE):
            passes = inside or name == "passes"
            if passes:
                yield child
            yield from _pass_modules(child, passes)


def _wrap(original: Any, anchor: str) -> Any:
    def add(manager: Any, *arguments: Any, **options: Any) -> Any:
        state = _stage.get()
        if state is None:
            _notice_lost_hook()
            return original(manager, *arguments, **options)
        return state.add(manager, anchor, lambda: original(manager, *arguments, **options))

    add.__doc__ = getattr(original, "__doc__", None)
    add.__wrapped__ = original  # type: ignore[attr-defined]
    return add


def _notice_lost_hook() -> None:
    """A backend of Triton's compiles without us though we are enabled: never in silence."""
    from .switch import is_enabled

    caller = sys._getframe(2).f_globals.get("__name__", "")
    if caller.startswith("triton.backends.") and is_enabled():
        raise PluginError(
            f"{PACKAGE} is enabled, but another stages hook (triton.knobs.runtime.add_stages_inspection_hook) took its place "
            "and does not call it. Make that hook call the one it found, or set it before enable()."
        )


@contextmanager
def tracing() -> Iterator[dict[str, list[str]]]:
    """Collects the passes of each stage that is compiled inside, in order."""
    trace: dict[str, list[str]] = {}
    token = _trace.set(trace)
    try:
        yield trace
    finally:
        _trace.reset(token)


def describe(target: str = "cuda:90") -> dict[str, list[str]]:
    """The real pipeline for `target`, as in "cuda:90" or "hip:gfx942".

    For each stage the names of Triton's passes, which are the anchors, and the
    plugin's, marked with the package's name, where the current settings put them.
    Compiles an empty kernel up to LLVM IR; needs no GPU and leaves no cache.
    """
    from .switch import steps_now

    return _trace_empty(target, *steps_now())


def anchors(target: str) -> dict[str, list[str]]:
    """Triton's own passes for `target`, by stage. The plugin is not loaded."""
    wrap_passes()
    return _trace_empty(target, (), None)


def _trace_empty(target: str, steps: Sequence[Step], plugin: Plugin | None) -> dict[str, list[str]]:
    import tempfile
    from pathlib import Path

    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler import make_backend

    vendor, _, arch = target.partition(":")
    backend = make_backend(GPUTarget(vendor, int(arch) if vendor == "cuda" else arch, 64 if vendor == "hip" else 32))
    options = backend.parse_options({"enable_fp_fusion": True})
    metadata = {**vars(options), "target": backend.target}
    stages: dict[str, Any] = {}
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.TemporaryDirectory() as scratch, tracing() as trace:
        path = Path(scratch) / "empty.ttir"
        path.write_text("module { tt.func public @empty() { tt.return } }")
        module: Any = ir.parse_mlir_module(str(path), context)
        module.context = context
        backend.add_stages(stages, options, Language.TRITON)
        wrap_stages(stages, target, steps, plugin)
        for name in STAGES:
            module = stages[name](module, metadata)
    return trace
