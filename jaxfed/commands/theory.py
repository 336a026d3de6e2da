"""Measure the claims of the papers: progress part by part, then the table."""

import os
import sys

from jaxfed.commands.catalogue import Theory


def theory(options: Theory) -> int:
    """Measure, print the table, and return 0, whatever the verdicts: a claim that fails is a finding."""
    if options.smoke and "jax" not in sys.modules:  # most of a toy run is compiling; jax reads this when it starts
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    from jaxfed.theory import report

    found = report.run(options.only, options.smoke, options.seed, options.out)
    print("\n" + report.summary(found))
    print("\nnot saved: no --out was given" if options.out is None else f"\nsaved in {options.out}")
    return 0
