"""From the options of a vertical run to its masks and its defence."""

from typing import Any

from jaxfed import checks
from jaxfed.commands import vertical_options as o
from jaxfed.privacy import defences
from jaxfed.privacy.marvell import Marvell
from jaxfed.vertical import Objective, SecureAggregation

DEFENCES: dict[str, tuple[Any, str | None]] = {
    "gaussian": (defences.Gaussian, "std"),
    "max-norm": (defences.MaxNorm, "strength"),
    "marvell": (Marvell, "power"),
    "randomised-response": (defences.RandomisedResponse, "epsilon"),
    "clip": (defences.Clip, "bound"),
    "batch-gradients": (defences.BatchGradients, None),
}


def fields(given: o.Protection, objective: Objective) -> dict[str, Any]:
    """Return the fields `secure` and `defence` of an algorithm. Raises ValueError, with the option's name."""
    default = o.Protection()
    if given.masks != "float" and given.mask_scale != default.mask_scale:
        checks.fail("mask_scale", f"{given.mask_scale:g} with --masks {given.masks}", "--masks float")
    checks.number("mask_scale", given.mask_scale, 0)
    secure = None
    if given.masks != "none":
        bits = None if given.masks == "float" else int(given.masks)
        secure = SecureAggregation(scale=given.mask_scale, bits=bits)
    return {"secure": secure, "defence": _defence(given, objective)}


def _defence(given: o.Protection, objective: Objective) -> Any:
    if given.defence == "none":
        if given.strength is not None:
            checks.fail("strength", f"{given.strength:g} with --defence none", "--defence with it")
        return None
    make, field = DEFENCES[given.defence]
    least = 1e-6 if make is defences.RandomisedResponse else 0  # below it the unbiased correction has no digits left
    if given.strength is not None:
        checks.number("strength", given.strength, least)
    if make is defences.RandomisedResponse:
        checks.one_of("loss", objective.loss, tuple(defences.SLOPE))
    own: dict[str, Any] = {"loss": objective.loss} if make is defences.RandomisedResponse else {}
    if given.strength is None:
        return make(**own)
    if field is None:
        checks.fail("strength", f"{given.strength:g} with --defence {given.defence}", "none: it has no strength")
    own[field] = given.strength
    return make(**own)
