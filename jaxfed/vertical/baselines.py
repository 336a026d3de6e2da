"""What VFB2 is compared with (section 7): the non-federated method, and a method without backward updating.

The third comparison, "synchronous VFL algorithms with BUM, denoted as VFB", is `Synchronous`: the same algorithms under
another scheduler (`BilevelAsync(...).synchronous()` has the same times and stragglers).
"""

from typing import Any

from jaxfed.checks import fail
from jaxfed.vertical.data import PartyData
from jaxfed.vertical.objective import Objective
from jaxfed.vertical.svrg import VFB2SVRG


def non_federated(party: Any) -> PartyData:
    """Return the data of NonF, "all data are integrated together for modeling": one party with all columns and labels.

    Any of the three methods run on it is its NonF counterpart: the serial method on the joined features, one dominated
    update at a time. Test rows need the same: `non_federated(test)`. Columns are in the user's order, so parameters
    compare as `one.join(w)` and `party.join(w)`. Scaling and the intercept are those of `party`.
    """
    if not hasattr(party, "train") or not hasattr(party.train, "joined"):
        fail("party", type(party).__name__, "PartyData")
    return party.train.joined()


def afsvrg_vp(objective: Objective, lr: Any = 0.1, batch_size: int = 1, epoch_length: int | None = None) -> VFB2SVRG:
    """Return AFSVRG-VP (Gu et al. 2020b): SVRG without backward updating, fields as in `VFB2SVRG`.

    It "can not optimize the parameters corresponding to passive parties due to lacking labels": their blocks stay at 0.
    The paper runs it with labels at half of the parties, `split(..., num_active=q // 2)`. A departure: in Gu et al. a
    party moves only on the updates that it dominates; here active parties also apply each other's, which is m times as
    many steps of the same mean towards the same point. `backward=False` also makes AFSGD-VP and AFSAGA-VP of the other
    two methods.
    """
    return VFB2SVRG(objective, lr=lr, batch_size=batch_size, epoch_length=epoch_length, backward=False)
