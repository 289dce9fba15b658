"""Where tensors are computed: on the processor, or on a CUDA device of this machine.

A device changes how long a fit takes, and how it is rounded. It changes neither what is asked of
the data nor the noise, which is made on the processor and then moved.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloister.errors import InputError, PlanError

if TYPE_CHECKING:
    import torch

AUTO = "auto"
"""The first CUDA device, or the processor where there is none."""

PATTERN = r"^(auto|cpu|cuda(:[0-9]{1,3})?)$"
"""What may be asked for."""

_DRIVER = "libcuda.so.1"
"""The library of NVIDIA's driver: without it torch, which is slow to load, need not be asked."""

_MIB = 1 << 20


@dataclass(frozen=True)
class Device:
    """The processor, or the CUDA device of a number."""

    cuda: int | None = None

    def __str__(self) -> str:
        """The name that torch and XGBoost know it by."""
        return "cpu" if self.cuda is None else f"cuda:{self.cuda}"

    @property
    def torch(self) -> torch.device:
        """The device as torch has it."""
        import torch

        return torch.device(str(self))

    @property
    def determinism(self) -> str:
        """What is promised of a run that resumes a killed one, whose answers it reads again."""
        if self.cuda is None:
            return "a run that resumes on this machine has the same model"
        return "a run that resumes has the same model but for rounding, on any device"


CPU = Device()
"""The processor."""


def resolve_device(asked: str) -> Device:
    """The device of this machine that ``auto``, ``cpu``, ``cuda`` or ``cuda:NUMBER`` names.

    Raises:
        InputError: it is none of these, or there is no such device.
    """
    if not re.fullmatch(PATTERN, asked):
        raise InputError("a device is auto, cpu, cuda or cuda:NUMBER; give one of these")
    if asked == str(CPU):
        return CPU
    found, (_, _, number) = count_cuda_devices(), asked.partition(":")
    if asked == AUTO:
        return Device(0) if found else CPU
    wanted = Device(int(number or 0))
    if int(number or 0) >= found:
        raise InputError(
            f"device {wanted}: torch finds {found or 'no'} CUDA device{'s'[found == 1 :]} on this "
            "machine; install NVIDIA's driver and a build of torch with CUDA, or use --device cpu"
        )
    return wanted


def count_cuda_devices() -> int:
    """How many CUDA devices torch can use here."""
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def free_memory(device: Device) -> int | None:
    """Bytes of a CUDA device that nobody uses now; None for the processor."""
    if device.cuda is None:
        return None
    import torch

    free, _ = torch.cuda.mem_get_info(device.cuda)
    return int(free)


def require_memory(device: Device, needed: int) -> None:
    """Check that a CUDA device has ``needed`` bytes free.

    Raises:
        PlanError: it has not.
    """
    free = free_memory(device)
    if free is not None and needed > free:
        raise PlanError(
            f"device {device} has {free // _MIB:,} MiB free, and training needs about "
            f"{needed // _MIB:,}; end what uses it, or use --device cpu"
        )
