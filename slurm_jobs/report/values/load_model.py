"""Load and probes of the nodes of a training as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_jobs.nodes.probe.node_comparison import SlowMeasure


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """Reading over the time of the steps, weighted by duration."""

    mean: float
    p5: float
    p95: float
    num: int
    """Number of readings; each of several GPUs counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLoad:
    """One node during the measured steps of a training; None for what no reading has."""

    node: str
    num_readings: int
    num_cores: int
    """Number of cores that the job may use."""
    num_cores_asked: int
    """Number of requested cores, within `num_cores`; equal to it if the spec has no number."""
    num_ranks: int
    """Number of ranks on the node."""
    cpu_busy: Level | None
    """Share of those cores, all processes."""
    cpu_iowait: Level | None
    """Share of those cores, idle with a disk request outstanding."""
    job_cpu_cores: Level | None
    """Cores kept busy by the job's processes."""
    other_cores: Level | None
    """Cores of the job kept busy by others, per reading. A reading may be below 0, because it
    combines two clocks."""
    num_cores_unasked: float
    """Cores that the job may use but did not request, the mean over its attempts."""
    disk_read: Level | None
    """Bytes per second, all disks of the node."""
    network_receive: Level | None
    """Bytes per second, InfiniBand included."""
    link_bytes_per_s: float | None
    """Sum over its links that are up and report their speed."""
    gpu_names: tuple[str, ...]
    """Name of each GPU that was read."""
    gpu_busy: Level | None
    """Share of the time that any kernel ran, over all its GPUs and readings."""
    gpu_memory_peak_bytes: float | None
    """Memory use of the fullest GPU, by all processes."""
    gpu_memory_bytes: float | None
    """Memory of the smallest GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderLoad:
    """Activity of the loader's threads of one rank, for a mean measured step."""

    rank: int
    node: str
    num_threads: int | None
    """Number in the newest config of a `run: train`; None for streamed shards, too."""
    work_s: float
    """Thread seconds for a step's microbatches, summed over threads."""
    cpu_s: float
    """Part of it spent computing."""
    core_wait_s: float | None
    """Part of it ready to compute while others had the cores; None if the kernel does not report
    it."""
    step_s: float
    data_wait_s: float
    read_blocked_s: float | None = None
    """Part of `work_s` blocked in the one thread that reads for all others; None if each reads."""

    @property
    def blocked_s(self) -> float:
        """Rest of `work_s`: waiting for storage or a lock, or for a core if not reported."""
        return max(0.0, self.work_s - self.cpu_s - (self.core_wait_s or 0.0))

    @property
    def busy_share(self) -> float | None:
        """Share of all threads' time in which they were working on a microbatch."""
        if not self.num_threads or self.step_s <= 0:
            return None
        return self.work_s / (self.num_threads * self.step_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbedNode:
    """One node of a training, with its newest probe compared to similar nodes."""

    node: str
    measured_unix_s: float
    days_apart: float
    """Time between the probe and the training; 0 during the training."""
    other_busy_cores: float | None
    """Cores kept busy by others during the probe; None if negligible."""
    num_compared: int
    """Number of other probed nodes with the same hardware."""
    slow: tuple[SlowMeasure, ...]
    """The slowest first; empty if it is not slow, or there are too few nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeProbes:
    """Nodes of one training, and their probes."""

    nodes: tuple[str, ...]
    """All of them, probed or not."""
    probed: tuple[ProbedNode, ...]
    command: str
    """Command that probes and compares them; empty if no command helps."""
