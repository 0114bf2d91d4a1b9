# Owned by the project template; changed only by `copier update`.
"""What keeps the promises of a plugin: loading, order, cache keys, failure."""

from .loader import load
from .pipeline import describe
from .policy import PluginError, PluginUnavailable
from .switch import disable, disabled, enable, enabled, is_enabled

__all__ = [
    "PluginError",
    "PluginUnavailable",
    "describe",
    "disable",
    "disabled",
    "enable",
    "enabled",
    "is_enabled",
    "load",
]
