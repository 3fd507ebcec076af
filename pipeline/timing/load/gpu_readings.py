"""Readings of the job's GPUs from NVML: busy time, memory and power.

Needs the package nvidia-ml-py, whose module is `pynvml`. Without it, or without a driver, there
are no readings.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_jobs.formats.timings.system_readings import MAX_GPUS

log = logging.getLogger(__name__)


def choose_gpus(visible: str | None, uuids: Sequence[str]) -> Sequence[str]:
    """Return the UUIDs of the GPUs in `CUDA_VISIBLE_DEVICES`, at most `MAX_GPUS`.

    Read like CUDA does (its programming guide, "CUDA Environment Variables"): numbers, or
    UUIDs, which may be abbreviated; entries after the first invalid one are ignored. Numbers
    are in NVML's order, by PCI bus, which is CUDA's on nodes with GPUs of one kind.

    If the variable is not set, `visible` is None: all of `uuids`, which are in NVML's order.
    """
    if visible is None:
        return uuids[:MAX_GPUS]
    chosen: list[str] = []
    for word in (part.strip() for part in visible.split(",")):
        if word.isdecimal() and int(word) < len(uuids):
            chosen.append(uuids[int(word)])
        elif word.startswith("MIG-"):
            chosen.append(word)
        elif word.startswith("GPU-") and (matching := [u for u in uuids if u.startswith(word)]):
            chosen.append(matching[0])
        else:
            break
    return list(dict.fromkeys(chosen))[:MAX_GPUS]


class GpuSource:
    """Reads some GPUs; a value that one of them does not provide is NaN, logged once."""

    def __init__(self, nvml: Any, uuids: Sequence[str]) -> None:
        """Open the GPUs; those that cannot be opened are left out, with a warning."""
        self._nvml = nvml
        self._handles: list[Any] = []
        self._said: set[str] = set()
        self.facts: list[Mapping[str, Any]] = []
        for uuid in uuids:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                fact = {
                    "uuid": uuid,
                    "name": str(nvml.nvmlDeviceGetName(handle)),
                    "memory_bytes": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                }
            except nvml.NVMLError as error:
                log.warning("system readings lack the GPU %s: NVML says: %s", uuid, error)
                continue
            self._handles.append(handle)
            self.facts.append(fact)

    def read_all(self) -> Mapping[str, Sequence[float]]:
        """Return values of all GPUs by field."""
        rates = [self._ask("nvmlDeviceGetUtilizationRates", handle) for handle in self._handles]
        memory = [self._ask("nvmlDeviceGetMemoryInfo", handle) for handle in self._handles]
        power_mw = [self._ask("nvmlDeviceGetPowerUsage", handle) for handle in self._handles]
        return {
            "gpu_busy_share": [_part(rate, "gpu") / 100 for rate in rates],
            "gpu_memory_busy_share": [_part(rate, "memory") / 100 for rate in rates],
            "gpu_memory_used_bytes": [_part(info, "used") for info in memory],
            "gpu_power_w": [math.nan if mw is None else mw / 1000 for mw in power_mw],
        }

    def _ask(self, function: str, handle: Any) -> Any:
        try:
            return getattr(self._nvml, function)(handle)
        except self._nvml.NVMLError as error:
            if function not in self._said:
                self._said.add(function)
                log.warning("system readings: a GPU does not answer %s: %s", function, error)
            return None

    def close(self) -> None:
        """Release the driver."""
        self._nvml.nvmlShutdown()


def _part(answer: Any, name: str) -> float:
    return math.nan if answer is None else float(getattr(answer, name))


def open_gpus(
    visible: str | None,
    *,
    load: Callable[[], Any] = lambda: importlib.import_module("pynvml"),
    driver: Path = Path("/proc/driver/nvidia/version"),
) -> GpuSource | None:
    """Open the job's GPUs; None if there is none or none is readable, which is logged."""
    if not driver.exists():
        return None
    try:
        nvml = load()
    except ImportError:
        log.warning(
            "system readings have no GPUs: this Python lacks the package nvidia-ml-py "
            "(`pip install nvidia-ml-py`, or slurm-jobs[train])"
        )
        return None
    try:
        nvml.nvmlInit()
        # NVML also counts GPUs that a container or Slurm's cgroup denies
        # (`NVML_ERROR_NO_PERMISSION`), or that have fallen off the bus; CUDA does not number them.
        uuids = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                uuids.append(str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))))
            except nvml.NVMLError as error:
                log.info("NVML does not open GPU %d of this node: %s", index, error)
        source = GpuSource(nvml, choose_gpus(visible, uuids))
    except nvml.NVMLError as error:
        log.warning("system readings have no GPUs: NVML says: %s", error)
        return None
    if source.facts:
        return source
    source.close()
    return None
