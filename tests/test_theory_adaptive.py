"""The claims on the adaptive alpha, each with a broken variant that flips its verdict."""

import numpy as np
import pytest

import jaxfed as jf
from jaxfed import steps
from jaxfed.datasets.synthetic import label_skewed_gaussians
from jaxfed.theory.claims import CONDITIONAL, FAILS, HOLDS
from jaxfed.theory.experiments import adaptive
from jaxfed.theory.experiments.skewed_clients import TEST_ROWS, Kind, federation, pool

SIZE = adaptive.Size(5, 60)


class Uphill(jf.APFL):
    """alpha moves against its gradient's sign."""

    def client_update(self, key, server, client, view):
        rate = steps.at(self.alpha_lr, server.round)
        return super(Uphill, self.replace(alpha_lr=-rate)).client_update(key, server, client, view)


class Growth(jf.APFL):
    """The decay has the wrong sign."""

    def client_update(self, key, server, client, view):
        return super(Growth, self.replace(alpha_l2=-self.alpha_l2)).client_update(key, server, client, view)
