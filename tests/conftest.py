"""Settings of the whole test run: the CPU unless the environment says otherwise, and compiled programs kept on disk.

The cache is keyed by the compiled program, the compiler's version and its options, so a change of code misses it. The
key does not tell CPUs apart, and a program may hold instructions that another lacks: so each kind has its own folder.
"""

import gc
import hashlib
import os
import platform
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import pytest  # noqa: E402


def cpu() -> str:
    """A name for this kind of CPU: a hash of the instruction sets that it has, where the system tells them."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = [line for line in lines if line.lower().startswith(("flags", "features", "model name"))]
    return hashlib.sha256("".join(sorted(set(flags)) or [platform.processor()]).encode()).hexdigest()[:12]


jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".jax_cache" / cpu()))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture
def x64():
    """Run the test in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Drop a module's compiled programs at its end: some hundreds of them use up a process's memory maps (65,530 on
    Linux), and then the compiler crashes. The cache on disk gives back those that are needed again."""
    yield
    jax.clear_caches()
    gc.collect()
