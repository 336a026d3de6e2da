"""The two baselines without a personal method: every client alone, and the server model fine-tuned by each client."""

from tests.reference.fedavg import local_sgd
from tests.reference.trees import copy


def local_only_round(model, v, clients, cohort, batches, lr, optimizer=None):
    """Each client of the cohort trains its own model v[i]; the others, and clients without rows, keep theirs."""
    v = [copy(v_i) for v_i in v]
    for i in cohort:
        x, y = clients[i]
        if len(y) > 0:
            v[i] = local_sgd(model, v[i], x, y, batches[i], lr, optimizer)
    return v


def fine_tune(model, w, clients, cohort, batches, lr, optimizer=None):
    """{client: model trained from the server model w on its rows}; w itself for a client without rows."""
    tuned = {}
    for i in cohort:
        x, y = clients[i]
        tuned[i] = local_sgd(model, w, x, y, batches[i], lr, optimizer) if len(y) > 0 else copy(w)
    return tuned
