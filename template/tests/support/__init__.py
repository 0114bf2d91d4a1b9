# Owned by the project template; changed only by `copier update`.
"""Fixtures and checks that the tests of any plugin need."""
