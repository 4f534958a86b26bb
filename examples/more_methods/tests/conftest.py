"""Fixtures of the repository's tests that the tests of this plugin use."""

from tests.conftest import fast_compositions, sound_run  # noqa: F401
