"""Measure the claims of the papers: progress part by part, then the table."""

import os
import sys

from jaxfed.commands.catalogue import Theory

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def theory(options: Theory) -> int:
    """Measure, print the table, and return 0, whatever the verdicts: a claim that fails is a finding."""
    if options.smoke and "jax" not in sys.modules:  # most of a toy run is compiling; jax reads this when it starts
        os.environ.setdefault("XLA_FLAGS", QUICK)
    from jaxfed.theory import report

    found = report.run(options.only, options.smoke, options.seed, options.out, workers=report.cores())
    print("\n" + report.summary(found))
    print("\nnot saved: no --out was given" if options.out is None else f"\nsaved in {options.out}")
    return 0
