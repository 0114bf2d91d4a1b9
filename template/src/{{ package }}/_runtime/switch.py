# Owned by the project template; changed only by `copier update`.
"""Switches the plugin on and off, beside whatever else hooks into Triton."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import libtriton, loader, policy
from .pipeline import Step, resolve, wrap_passes, wrap_stages
from .policy import ENVIRONMENT, PACKAGE, PluginUnavailable

# Tells a child process what its parent enabled, as JSON.
VARIABLE = f"{ENVIRONMENT}_ENABLED"


@dataclass(frozen=True)
class Configuration:
    """What is switched on. Without a plugin: the fallback, for the same keys."""

    plugin: loader.Plugin | None
    steps: tuple[Step, ...]
    switches: str  # JSON, for child processes
    key: str
    digest: str


_OFF = object()
_UNSET = object()
_scoped: ContextVar[Any] = ContextVar(f"{PACKAGE}_scoped", default=_UNSET)
_stack: list[Configuration] = []
_lock = threading.RLock()
_scopes = 0
_hook: _Hook | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def current() -> Configuration | None:
    """What is switched on here: by the innermost `with`, else by enable()."""
    scoped = _scoped.get()
    if scoped is not _UNSET:
        return None if scoped is _OFF else scoped
    return _stack[-1] if _stack else None


def is_enabled() -> bool:
    """Whether kernels compiled here get the plugin's passes."""
    configuration = current()
    return configuration is not None and configuration.plugin is not None


def enable(*, policy: str | None = None, **switches: bool | dict[str, Any]) -> None:
    """Switches the plugin on, for every thread, until disable().

    switches: for each pass True, False, or a dict of its options; a pass that is
        not named does what passes.py says.
    policy: "error" or "fallback", for this call.
    Raises PluginUnavailable under the policy `error` where the plugin cannot be
    loaded, and PluginError for an unknown pass or option.
    """
    configuration = _configure(policy, switches)
    with _lock:
        _stack.append(configuration)
        _install()
        _tell_others()


def disable() -> None:
    """Takes the last enable() back; without one it does nothing."""
    with _lock:
        if _stack:
            _stack.pop()
            _tidy()
            _tell_others()


@contextmanager
def enabled(*, policy: str | None = None, **switches: bool | dict[str, Any]) -> Iterator[None]:
    """Like enable(), for this thread or task and only inside the `with`."""
    with _scope(_configure(policy, switches)):
        yield


@contextmanager
def disabled() -> Iterator[None]:
    """Switches the plugin off for this thread or task inside the `with`."""
    with _scope(_OFF):
        yield


@contextmanager
def _scope(value: Any) -> Iterator[None]:
    global _scopes
    with _lock:
        _scopes += 1
        _install()
    token = _scoped.set(value)
    try:
        yield
    finally:
        _scoped.reset(token)
        with _lock:
            _scopes -= 1
            _tidy()


_configurations: dict[str, Configuration] = {}


def _configure(requested: str | None, switches: dict[str, Any]) -> Configuration:
    rule = policy.resolve(requested)
    try:
        question = json.dumps([rule, switches], sort_keys=True)
    except TypeError:  # an option of a type that resolve() refuses
        question = repr(switches)
    if question not in _configurations:
        _configurations[question] = _make_configuration(rule, switches)
    return _configurations[question]


def _make_configuration(rule: str, switches: dict[str, Any]) -> Configuration:
    from .. import dialects, passes

    steps = resolve(passes.PIPELINE, dialects.NAME, switches)
    plugin = None
    try:
        plugin = loader.load()
    except PluginUnavailable as error:
        if rule == "error":
            raise
        policy.warn_once(str(error))
        steps = ()
    facts = {
        "package": PACKAGE,
        "plugin": None if plugin is None else [plugin.record["version"], _sha256(plugin.path)],
        "sources": _sources(),
        "steps": [
            [step.name, repr(step.spec), [[name, repr(value)] for name, value in step.options]] for step in steps
        ],
    }
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    # The second is compared at every launch, in memory only: short.
    return Configuration(plugin, steps, json.dumps(switches), f"{PACKAGE}-{digest}", digest[:16])


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sources() -> str:
    """The author's Python, which decides what a kernel becomes as the library does."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).resolve().parent.parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_NOTHING = ("", "")


class _Hook:
    """Our link in the chain of stages hooks; Triton has one slot for all.

    Called without arguments at every launch for the cache key, so the whole
    chain's answer is remembered for as long as no link's `token` changes; called
    with the stages at every compilation. A link without a token, and one whose
    answer depends on the thread (token None), is asked each time.
    """

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self.token: object = object()
        self._remembered: tuple[tuple[tuple[Any, object], ...], tuple[str, str]] = ((), _NOTHING)
        self._seen: tuple[Any, Configuration | None, tuple[str, str]] = (None, None, _NOTHING)

    def __call__(
        self,
        backend: Any = None,
        stages: Any = None,
        options: Any = None,
        language: Any = None,
        capability: Any = None,
    ) -> tuple[str, str]:
        if stages is None:
            chain, answer = self._remembered
            for link, token in chain:
                if link.token is not token:
                    break
            else:
                if chain:
                    return answer
            return self._ask()
        if self.previous is not None:
            self.previous(backend, stages, options, language, capability)
        configuration = current() if self is _hook else None
        if configuration is not None and configuration.plugin is not None:
            target = f"{backend.target.backend}:{backend.target.arch}"
            wrap_stages(stages, target, configuration.steps, configuration.plugin)
        return self._ask()

    def _ask(self) -> tuple[str, str]:
        """The chain's key and digest now; both of each link end up in them."""
        before = _NOTHING if self.previous is None else self.previous()
        configuration = current() if self is _hook else None
        seen_before, seen_configuration, answer = self._seen
        if before is not seen_before or configuration is not seen_configuration:
            answer = before
            if configuration is not None:
                answer = (before[0] + configuration.key, before[1] + configuration.digest)
            self._seen = (before, configuration, answer)
        link: Any = self
        chain: list[tuple[Any, object]] = []
        while link is not None and (token := getattr(link, "token", None)) is not None:
            chain.append((link, token))
            link = link.previous
        if link is None:
            self._remembered = (tuple(chain), answer)
        return answer


def _changed() -> None:
    """Has the hooks asked anew; each time while a `with` of some thread is open."""
    if _hook is not None:
        _hook.token = None if _scopes else object()


def _install() -> None:
    global _hook
    if libtriton.find() is None:
        return  # the fallback, where there is no Triton to hook into
    from triton import knobs

    wrap_passes()
    if knobs.runtime.add_stages_inspection_hook is not _hook or _hook is None:
        # Ours may still be called from further down the chain; it passes on then.
        _changed()
        _hook = _Hook(knobs.runtime.add_stages_inspection_hook)
        knobs.runtime.add_stages_inspection_hook = _hook
    _changed()


def _tidy() -> None:
    """Gives the slot back once nothing needs it, unless somebody else took it."""
    global _hook
    if not _stack and not _scopes and _hook is not None:
        from triton import knobs

        if knobs.runtime.add_stages_inspection_hook is _hook:
            knobs.runtime.add_stages_inspection_hook = _hook.previous
        _hook.token = object()  # for good, where it stays in somebody's chain
        _hook = None
    _changed()


def _tell_others() -> None:
    """Child processes and torch.compile's caches have to know what is enabled."""
    tag = ""
    os.environ.pop(VARIABLE, None)
    if _stack:
        os.environ[VARIABLE] = _stack[-1].switches
        tag = _stack[-1].key
    _set_tag(tag)
    # Workers that Inductor started earlier hold the old environment.
    asynchronous = sys.modules.get("torch._inductor.async_compile")
    if asynchronous is not None and hasattr(asynchronous, "shutdown_compile_workers"):
        asynchronous.shutdown_compile_workers()


def _set_tag(tag: str) -> None:
    """Replaces our part of the tag that torch.compile adds to its cache keys."""
    variable = "TORCH_COMPILE_CACHE_KEY_TAG"
    config: Any = sys.modules.get("torch.compiler.config")
    present = getattr(config, "cache_key_tag", None) or os.environ.get(variable, "")
    others = [part for part in present.split(",") if part and not part.startswith(f"{PACKAGE}-")]
    joined = ",".join([*others, tag] if tag else others)
    os.environ[variable] = joined
    if not joined:
        del os.environ[variable]
    if config is not None and hasattr(config, "cache_key_tag"):
        config.cache_key_tag = joined


def enable_as_parent() -> None:
    """Enables what the parent process had enabled, if it had and we have not."""
    inherited = os.environ.get(VARIABLE)
    if inherited and not _stack:
        enable(**json.loads(inherited))


def steps_now() -> tuple[tuple[Step, ...], loader.Plugin]:
    """The steps switched on here, or those of enable() without arguments."""
    configuration = current() or _configure("error", {})
    return configuration.steps, configuration.plugin or loader.load()
