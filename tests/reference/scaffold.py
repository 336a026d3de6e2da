"""SCAFFOLD (Karimireddy et al. 2020, Algorithm 1)."""

from tests.reference.trees import add, axpy, copy, one_of, scale, sub, weighted_mean, zeros_like


def init_controls(w, num_clients):
    """c = 0 and c_i = 0 for every client."""
    return zeros_like(w), [zeros_like(w) for _ in range(num_clients)]


def scaffold_round(model, w, c, controls, clients, cohort, batches, lr, server_lr=1.0, option=2):
    """One round from server model w, server control c and clients' controls c_i; returns (w, c, [c_i]).

    Local step: y_i -= lr (g_i(y_i) - c_i + c), K_i = len(batches[i]) times.
    Option 1: c_i+ = gradient of f_i at w on all rows of the client. Option 2: c_i+ = c_i - c + (w - y_i) / (K_i lr).
    Server: w += server_lr mean_S(y_i - w); c += |S|/N mean_S(c_i+ - c_i), uniform means.
    Clients without rows are in neither S nor N, so c stays the mean of all c_i. Raises ValueError for option 2 where a
    client with rows takes no local step.
    """
    one_of("option", option, (1, 2))
    new_controls = [copy(c_i) for c_i in controls]
    model_changes, control_changes = [], []
    for i in cohort:
        x, y = clients[i]
        if len(y) == 0:
            continue
        y_i = copy(w)
        for batch in batches[i]:
            g = model.grad(y_i, x[batch], y[batch])
            y_i = axpy(-lr, add(sub(g, controls[i]), c), y_i)
        if option == 1:
            new_controls[i] = model.grad(w, x, y)
        else:
            steps = len(batches[i])
            if steps == 0:
                raise ValueError(f"batches[{i}]: got 0 local steps, wanted at least 1 for option 2")
            new_controls[i] = axpy(1 / (steps * lr), sub(w, y_i), sub(controls[i], c))
        model_changes.append(sub(y_i, w))
        control_changes.append(sub(new_controls[i], controls[i]))
    if not model_changes:
        return copy(w), copy(c), new_controls

    uniform = [1] * len(model_changes)
    num_clients = sum(len(y) > 0 for _, y in clients)
    w = axpy(server_lr, weighted_mean(model_changes, uniform), w)
    c = add(c, scale(len(control_changes) / num_clients, weighted_mean(control_changes, uniform)))
    return w, c, new_controls
