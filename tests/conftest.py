"""Settings of the whole test run: the CPU unless the environment says otherwise, and compiled programs kept on disk.

The cache is keyed by the compiled program, the compiler's version and its options, so a change of code misses it.
"""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import pytest  # noqa: E402

CACHE = Path(__file__).parents[1] / ".jax_cache"

jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture
def x64():
    """Run the test in float64."""
    with jax.enable_x64(True):
        yield
