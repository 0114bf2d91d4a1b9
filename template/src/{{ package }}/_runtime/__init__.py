# Owned by the project template; changed only by `copier update`.
"""What keeps the promises of a plugin: loading, order, cache keys, failure."""
