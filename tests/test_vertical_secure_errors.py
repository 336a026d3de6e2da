"""Masks, defences and factors that don't go together with the parties are refused, with the field's name."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed.vertical import Objective, SecureAggregation
from tests.vertical_support import federation

PARTY = federation()[0]
ALGORITHM = jf.VFB2SGD(Objective("logistic", "l2", 0.05))
TREES = (((0, 2), 1, 3), (0, (3, 2), 1)), (((2, 0), 1, 3), (2, (3, (0, 1))))


@pytest.mark.parametrize(
    "masks, message",
    [
        (dict(bits=16), r"secure.bits: got 16, wanted one of 32, 64, None"),
        (dict(bits="32"), r"secure.bits: got '32', wanted one of 32, 64, None"),
        (dict(scale=-1.0), r"secure.scale: got -1, wanted at least 0, and finite"),
        (dict(scale=[1.0, 2.0]), r"secure.scale: got \[1.0, 2.0\], wanted one number"),
        (dict(seed=-1), r"secure.seed: got -1, wanted a whole number of at least 0"),
        (dict(fraction_bits=-1), r"secure.fraction_bits: got -1, wanted a whole number of at least 0"),
        (dict(fraction_bits=2.0), r"secure.fraction_bits: got 2.0, wanted a whole number of at least 0"),
        (dict(fraction_bits=29), r"secure.fraction_bits: got 29, wanted at most 28 for 32 bits and 4 parties, so that "
         "numbers below 1 fit"),
        (dict(bits=64, fraction_bits=61), r"secure.fraction_bits: got 61, wanted at most 60 for 64 bits"),
        (dict(trees=TREES[:1]), r"secure.trees: got 1, wanted a tuple of 2 pairs of trees, one per dominator"),
        (dict(trees=7), r"secure.trees: got 7, wanted a tuple of 2 pairs of trees, one per dominator"),
        (dict(trees=(TREES[0], (2, 0, 1))), r"secure.trees\[1\]: got \(2, 0, 1\), wanted a pair of trees, \(T1, T2\)"),
        (dict(trees=(TREES[0], TREES[0])), r"secure.trees\[1\], T1: got root 0, wanted party 2, the dominator, as the"),
        (dict(trees=(TREES[0], (TREES[1][0], (2, (0, 1))))), r"secure.trees\[1\], T2: got leaves \(2, 0, 1\), wanted"),
    ],
)  # fmt: skip
def test_masks_that_are_refused(masks, message):
    algorithm = ALGORITHM.replace(secure=SecureAggregation(**masks))
    with pytest.raises(ValueError, match=message):
        jf.run(0, algorithm, PARTY, num_rounds=1)


class Half:
    """Neither a defence nor masks."""

    def draw(self):
        """Nothing."""


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(secure=True), r"secure: got True, wanted vertical.SecureAggregation\(\), or None"),
        (dict(secure=SecureAggregation), r"secure: got <class .*, wanted vertical.SecureAggregation\(\), or None"),
        (dict(defence=0.5), r"defence: got 0.5, wanted one of privacy.defences, anything with draw and release, or"),
        (dict(defence=Half()), r"defence: got .*Half.*, wanted one of privacy.defences, anything with draw and"),
        (dict(defence=Half), r"defence: got <class .*Half.*, wanted one of privacy.defences"),
        (dict(factors=np.ones(3)), r"factors: got shape \(3,\), wanted \(4,\), one number per party, or None"),
        (dict(factors=2.0), r"factors: got shape \(\), wanted \(4,\), one number per party, or None"),
        (dict(factors=np.array([1, np.nan, 1, 1])), r"factors: got nan, wanted"),
    ],
)  # fmt: skip
def test_protection_that_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        jf.run(0, ALGORITHM.replace(**fields), PARTY, num_rounds=1)
