"""Where a release trains, in words for plans and certificates, and whether it has the memory."""

from __future__ import annotations

from typing import Any

from cloister.devices import CPU, Device, require_memory
from cloister.models.plan import AnyPlan
from cloister.tasks.requests.plan_report.forecast import forecast_of
from cloister.tasks.requests.public_context import public_context_of
from cloister.tasks.requests.resolved import ResolvedRequest


def training_device(request: ResolvedRequest, plan: AnyPlan) -> Device:
    """The device of the request, or the processor if nothing of the plan is trained elsewhere."""
    return request.computed_on if plan.forecast.device_memory else CPU


def require_forecast_memory(request: ResolvedRequest, plan: AnyPlan) -> None:
    """Check, by the forecast, that device and machine have the memory that a release needs.

    Raises:
        PlanError: one has not.
    """
    if (device := training_device(request, plan)) != CPU:
        require_memory(device, plan.forecast.device_memory)
    require_memory(CPU, forecast_of(request, public_context_of(request), plan).memory)


def device_words(request: ResolvedRequest, plan: AnyPlan) -> str:
    """The device, what of a release is computed there, and what that promises."""
    device = training_device(request, plan)
    if device == CPU != request.computed_on:
        return (
            f"cpu: method {request.method} trains nothing; {request.computed_on} for the evaluation"
        )
    if device == CPU:
        return f"cpu: {device.determinism}"
    needed = f"about {plan.forecast.device_memory / 2**30:.1f} GiB"
    return f"{device}, {needed}, with noise that the processor makes: {device.determinism}"


def device_json(request: ResolvedRequest, plan: AnyPlan) -> dict[str, Any]:
    """The same for programs."""
    device = training_device(request, plan)
    return {"device": str(device), "determinism": device.determinism}
