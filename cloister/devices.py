"""Where tensors are computed: on the processor, or on a CUDA device of this machine.

A device changes how long a fit takes, and how it is rounded. It changes neither what is asked of
the data nor the noise, which is made on the processor and then moved.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
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

_PROBED = (2048, 61)
"""Rows and levels by which processors are compared: those of a block, and no whole vectors."""

_CONTROL_GROUPS = Path("/proc/self/cgroup")
"""Linux's list of the control groups of a process: number, controllers, group."""

_TREES = Path("/sys/fs/cgroup")
"""Where control groups are mounted: that of version 2, or a tree for each controller."""

_MEMORY_FILES = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Limit and use of memory, by the controllers that the list names: of version 2, none."""


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


def resolve_device(name: str) -> Device:
    """The device of this machine that ``auto``, ``cpu``, ``cuda`` or ``cuda:NUMBER`` names.

    Raises:
        InputError: it is none of these, or there is no such device.
    """
    if not re.fullmatch(PATTERN, name):
        raise InputError("a device is auto, cpu, cuda or cuda:NUMBER; give one of these")
    if name == str(CPU):
        return CPU
    count, (_, _, number) = count_cuda_devices(), name.partition(":")
    if name == AUTO:
        return Device(0) if count else CPU
    wanted = Device(int(number or 0))
    if int(number or 0) >= count:
        raise InputError(
            f"device {wanted}: torch finds {count or 'no'} CUDA device{'s'[count == 1 :]} on this "
            "machine; install NVIDIA's driver and a build of torch with CUDA, or use --device cpu"
        )
    return wanted


@cache
def arithmetic() -> str:
    """A digest of how this process rounds on its processor: where it is equal, so are last digits.

    It is of the version of torch, its instructions and threads, and the bits of public products.
    """
    import torch

    generator = torch.Generator().manual_seed(1)
    rows, weights = (torch.randn(size, 24, generator=generator) for size in _PROBED)
    shares = torch.softmax(torch.tanh(rows) @ weights.T, 1)
    sums = shares.double().T @ rows.double()
    named = (torch.__version__, torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
    digest = hashlib.sha256(repr(named).encode())
    for made in (shares, sums):
        digest.update(made.numpy().tobytes())
    return digest.hexdigest()


def count_cuda_devices() -> int:
    """How many CUDA devices torch can use here."""
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def free_memory(device: Device) -> int:
    """Bytes that this process can have: those free on a CUDA device, or on this machine.

    Those of the machine are at most what control groups leave, and include what the process has.
    """
    if device.cuda is not None:
        import torch

        free, _ = torch.cuda.mem_get_info(device.cuda)
        return int(free)
    import psutil

    limits = (psutil.virtual_memory().available, *_left_by_control_groups())
    return min(limits) + psutil.Process().memory_info().rss


def require_memory(device: Device, needed: int, hint: str | None = None) -> None:
    """Check that a device, or this machine, has ``needed`` bytes free; ``hint`` is a remedy more.

    Raises:
        PlanError: it has not.
    """
    free = free_memory(device)
    if needed <= free:
        return
    owner, what, remedy = f"device {device}", "training", "use --device cpu"
    if device == CPU:
        owner, what = "this machine, or this job's share of it,", "the release"
        remedy = "raise the job's limit, or request fewer rows"
    raise PlanError(
        f"{owner} has {free // _MIB:,} MiB free, and {what} needs about {needed // _MIB:,}; end "
        f"what uses it, or {remedy}{f'; {hint}' if hint else ''}; nothing was charged now"
    )


def _left_by_control_groups() -> Iterator[int]:
    """Bytes that each control group of this process still grants, of version 1 or 2.

    Pages of files that can be dropped are not counted as used. In a container the group may be
    named as on the host, and only the root of the tree is there.
    """
    named = _CONTROL_GROUPS.read_text() if _CONTROL_GROUPS.exists() else ""
    for line in named.splitlines():
        _, controllers, group = line.split(":", 2)
        files = _MEMORY_FILES.get(controllers)
        if files is None:
            continue
        for folder in (Path(group), *Path(group).parents):
            root = _TREES / controllers / folder.relative_to("/")
            limit, used = (root / name for name in files)
            if limit.exists() and used.exists() and (most := limit.read_text().strip()) != "max":
                yield int(most) - int(used.read_text()) + _droppable(root / "memory.stat")


def _droppable(statistics: Path) -> int:
    """Bytes of inactive pages of files in a control group and those below it."""
    figures = dict(line.split(" ", 1) for line in statistics.read_text().splitlines())
    return int(figures.get("total_inactive_file", figures.get("inactive_file", 0)))
