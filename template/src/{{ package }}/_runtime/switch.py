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
    _epoch[2] = threading.Lock()


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
        _changed(+1)
    token = _scoped.set(value)
    try:
        yield
    finally:
        _scoped.reset(token)
        with _lock:
            _scopes -= 1
            _tidy()
            _changed(-1)


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

# Shared by all plugins of a process: an object that is another one after every
# change, None while a `with` is open; how many are open; and a lock for both.
_epoch: list[Any] = [None, 0, threading.Lock()]


class _Hook:
    """Our link in the chain of stages hooks; Triton has one slot for all.

    Called without arguments at every launch for the cache key, so the whole
    chain's answer is remembered until something changes; called with the stages
    at every compilation. Where the chain has a link that does not tell of its
    changes (no `remembers`), it is asked each time.
    """

    remembers = True

    def __init__(self, previous: Any) -> None:
        self.previous = previous
        self._at: object = None
        self._answer = _NOTHING
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
            now = _epoch[0]
            if now is self._at and now is not None:
                return self._answer
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
        now = _epoch[0]
        before = _NOTHING if self.previous is None else self.previous()
        configuration = current() if self is _hook else None
        seen_before, seen_configuration, answer = self._seen
        if before is not seen_before or configuration is not seen_configuration:
            answer = before
            if configuration is not None:
                answer = (before[0] + configuration.key, before[1] + configuration.digest)
            self._seen = (before, configuration, answer)
        if now is not None:
            link: Any = self
            while getattr(link, "remembers", False):
                link = link.previous
            if link is None:
                self._at, self._answer = now, answer
        return answer


def _changed(scopes: int = 0) -> None:
    """Has every plugin's hook asked anew; each time while a `with` is open."""
    with _epoch[2]:
        _epoch[1] += scopes
        _epoch[0] = None if _epoch[1] else object()


def _install() -> None:
    global _epoch, _hook
    if libtriton.find() is None:
        return  # the fallback, where there is no Triton to hook into
    from triton import knobs

    _epoch = vars(knobs).setdefault("_plugin_epoch", _epoch)
    wrap_passes()
    if knobs.runtime.add_stages_inspection_hook is not _hook or _hook is None:
        # Ours may still be called from further down the chain; it passes on then.
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
    # Inductor's workers hold the old environment, and its caches in memory know
    # kernels by their source alone.
    asynchronous: Any = sys.modules.get("torch._inductor.async_compile")
    codecache: Any = sys.modules.get("torch._inductor.codecache")
    if hasattr(asynchronous, "shutdown_compile_workers"):
        asynchronous.shutdown_compile_workers()
    for holder, name in ((asynchronous, "CompiledTritonKernels"), (codecache, "PyCodeCache")):
        cache: Any = getattr(holder, name, None)
        if hasattr(cache, "cache_clear"):
            cache.cache_clear()


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
