"""From options to what they stand for: client data, model, algorithm, scheduler, devices."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from jaxfed import checks, datasets, horizontal, models, parallel, processes, steps
from jaxfed.commands import options as o
from jaxfed.commands.catalogue import Apfl
from jaxfed.datasets import Arrays
from jaxfed.horizontal import APFL, FedAvg, FedData, FineTuned, LocalOnly, Scaffold
from jaxfed.horizontal.server import SERVER_OPTIMIZERS
from jaxfed.models import Model


def start_processes(options: Any) -> None:
    """Join the other processes, where the command's options ask for it; jax must not have started."""
    given = getattr(options.running, "processes", o.Processes())
    if given == o.Processes():
        return
    if given.coordinator is None and not given.distributed:
        checks.fail("coordinator", "none, but a number of processes or of this one", "HOST:PORT, or --distributed")
    parallel.start_processes(given.coordinator, given.num_processes, given.process_id)


def start_devices(running: o.Running) -> Mesh | None:
    """Set up jax, which must not have started: float64, and a mesh over the devices (None for one)."""
    if running.x64:
        jax.config.update("jax_enable_x64", True)
    if running.devices is not None:
        checks.whole("devices", running.devices, 1)
    if running.devices == 1 and not jax.distributed.is_initialized():
        return None
    parallel.use_cpu_cores(running.devices)
    there = jax.local_device_count()
    if running.devices is not None and running.devices > there:
        checks.fail("devices", running.devices, f"at most {there}, the devices there are")
    chosen = processes.of_each(running.devices)
    return None if len(chosen) == 1 else parallel.mesh(devices=chosen)


def client_data(data: o.Data) -> tuple[Arrays, FedData]:
    """Return the data set, and its rows dealt to clients."""
    deal = partition(data)
    check(data)
    arrays = datasets.load(data.dataset, data_dir=data.data_dir, download=data.download)
    if data.num_clients > len(arrays.y):
        checks.fail("num_clients", data.num_clients, f"at most {len(arrays.y)}, the training rows of {data.dataset}")
    if data.classes_per_client is not None and data.classes_per_client > arrays.num_classes:
        wanted = f"at most {arrays.num_classes}, the classes of {data.dataset}"
        checks.fail("classes_per_client", data.classes_per_client, wanted)
    parts = horizontal.split(arrays, deal, data.num_clients, data.data_seed, validation=data.validation)
    train, *validation, test = parts
    return arrays, train.with_parts(test, *validation)


def check(data: o.Data) -> None:
    """Raise ValueError, with the option's name, for what is wrong whatever the data set holds."""
    check_name(data.dataset)
    checks.whole("num_clients", data.num_clients, 1)
    checks.whole("data_seed", data.data_seed, 0)
    if data.classes_per_client is not None:
        checks.whole("classes_per_client", data.classes_per_client, 1)
    for field in ("concentration", "quantity"):
        checks.numbers(field, getattr(data, field), np.finfo(float).tiny)
    if not 0 <= data.validation < 1:
        checks.fail("validation", f"{data.validation:g}", "0 to below 1")


def check_name(dataset: str) -> None:
    """Raise ValueError for a data set that `datasets.load` does not know."""
    if not dataset.startswith(("tfds:", "idx:", "libsvm:")):
        checks.one_of("dataset", dataset, datasets.NAMES)


def partition(data: o.Data) -> Any:
    """Return the partition that is asked for, iid by default; ValueError where two are."""
    asked = {
        "--iid": data.iid or None,
        "--classes-per-client": data.classes_per_client,
        "--concentration": data.concentration,
        "--quantity": data.quantity,
    }
    names = [name for name, value in asked.items() if value is not None]
    if len(names) > 1:
        checks.fail("partition", " and ".join(names), f"one of {', '.join(asked)}")
    if data.classes_per_client is not None:
        return horizontal.Classes(data.classes_per_client)
    if data.concentration is not None:
        return horizontal.Dirichlet(data.concentration)
    return horizontal.Iid() if data.quantity is None else horizontal.Quantity(data.quantity)


def model(net: o.Net, arrays: Arrays) -> Model:
    """Return the model for a data set; ValueError where the two don't go together."""
    real_targets, row = arrays.num_classes == 0, arrays.x.shape[1:]
    l2 = net.l2 or None  # without a penalty no time goes into one
    if real_targets and net.model == "logistic":
        checks.fail("model", "'logistic' for real targets", "'linear', 'mlp' or 'cnn'")
    if net.model == "linear":
        if not real_targets:
            checks.fail("model", "'linear' for classes", "'logistic', 'mlp' or 'cnn'")
        return models.linear_regression(l2=l2)
    if net.model == "cnn" and len(row) != 3:
        checks.fail("model", f"'cnn' for rows of shape {row}", "images [height, width, channels]")
    outputs = arrays.num_classes or 1
    if net.model == "mlp":
        for width in net.hidden:
            checks.whole("hidden", width, 1)
        made = models.mlp(outputs, net.hidden, l2=l2)
    else:
        made = (models.cnn if net.model == "cnn" else models.logistic_regression)(outputs, l2=l2)
    return made.replace(loss="half_squared") if real_targets else made


def algorithm(name: str, given: Any, model: Model) -> Any:
    """Return the algorithm of a command's name, from the groups of options it has."""
    fields = local_fields(given.local)
    if name == "local":
        return LocalOnly(model, **fields, **_momentum(given.momentum))
    fields["server_lr"] = given.rate.server_lr
    if name == "scaffold":
        return Scaffold(model, **fields, option=given.control.control)
    if given.server.server_optimizer != "none":
        fields["server_optimizer"] = SERVER_OPTIMIZERS[given.server.server_optimizer]
    if given.server.weights is not None:
        fields["weights"] = given.server.weights
    if name in ("apfl", "apfl-adaptive"):
        fields |= dataclasses.asdict(given.mixing) | ({"adaptive": True} if name == "apfl-adaptive" else {})
        return APFL(model, **fields)
    fields |= _momentum(given.momentum)
    if name == "fine-tuned":
        return FineTuned(model, **fields, **dataclasses.asdict(given.tuning))
    return FedAvg(model, **fields)


def local_fields(local: o.Local) -> dict[str, Any]:
    """Return the fields that every algorithm has. A decaying lr is a schedule of the global round."""
    fields: dict[str, Any] = dataclasses.asdict(local)
    decay = fields.pop("lr_decay")
    checks.numbers("lr_decay", decay, 0)
    if decay != 1:
        fields["lr"] = steps.ExponentialDecay(local.lr, decay)
    if local.batch_size in ("full", 0):
        fields["batch_size"] = None
    return fields


def _momentum(group: o.Momentum) -> dict[str, Any]:
    if not 0 <= group.momentum < 1:
        checks.fail("momentum", f"{group.momentum:g}", "0 to below 1")
    return {"optimizer": functools.partial(optax.sgd, momentum=group.momentum)} if group.momentum else {}


def scheduler(running: o.Running, num_clients: int) -> Any:
    """Return who takes part: everybody, or cohorts drawn uniformly."""
    if running.cohort_size is None:
        return horizontal.FullParticipation(num_clients)
    return horizontal.UniformCohort(num_clients, running.cohort_size)


def fedtorch(given: Apfl) -> Apfl:
    """Return the options that `APFL.fedtorch` stands for at the given lr, as defaults that other options override."""
    preset = APFL.fedtorch(None, lr=given.local.lr)
    local: dict[str, Any] = {f.name: getattr(preset, f.name, None) for f in dataclasses.fields(o.Local)}
    local |= {"lr": preset.lr.value, "lr_decay": preset.lr.rate}
    mixing: dict[str, Any] = {f.name: getattr(preset, f.name) for f in dataclasses.fields(o.Mixing)}
    return Apfl(preset="fedtorch", local=o.Local(**local), mixing=o.Mixing(**mixing))
