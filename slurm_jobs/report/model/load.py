"""What a report says of the load of nodes while a training made its steps: plain values. PURE."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One kind of reading over the time of the steps; each reading weighs as long as it lasted."""

    mean: float
    p5: float
    p95: float
    num: int
    """Readings that told it; of several GPUs each counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLoad:
    """One node during the measured steps of a training; None is what no reading told."""

    node: str
    num_readings: int
    num_cores: int
    """That the job may use."""
    num_cores_asked: int
    """That it asked for, and no more than it may use; all of those where the spec does not say."""
    num_ranks: int
    """That ran there."""
    cpu_busy: Level | None
    """Share of those cores, all processes."""
    cpu_iowait: Level | None
    """Share of those cores, idle with a disk request of their own outstanding."""
    job_cpu_cores: Level | None
    """Cores kept busy by the job's own processes."""
    other_cores: Level | None
    """Of the cores that the job may use, those kept busy by others, reading by reading. A reading
    may be below 0, as the two clocks that it comes of tick apart."""
    num_cores_unasked: float
    """Of the cores that the job may use, those it did not ask for, the mean over its attempts."""
    disk_read: Level | None
    """Bytes a second, all disks of the node."""
    network_receive: Level | None
    """Bytes a second, InfiniBand included."""
    link_bytes_per_s: float | None
    """Of all its links that are up and say their speed, together."""
    gpu_names: tuple[str, ...]
    """Of each GPU that was read."""
    gpu_busy: Level | None
    """Share of the time that any kernel ran, over all its GPUs and readings."""
    gpu_memory_peak_bytes: float | None
    """Of the fullest GPU, by all processes."""
    gpu_memory_bytes: float | None
    """Of the smallest GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderLoad:
    """What the loader's threads of one rank did, a mean measured step."""

    rank: int
    node: str
    num_threads: int | None
    """As the newest config of a `run: train` has it; None of streamed shards, too."""
    work_s: float
    """Thread seconds that a step's microbatches took; of several threads they add up."""
    cpu_s: float
    """Of it, computing."""
    core_wait_s: float | None
    """Of it, ready to compute while others had the cores; None where the kernel does not tell."""
    step_s: float
    data_wait_s: float
    read_blocked_s: float | None = None
    """Of `work_s`, blocked in the one thread that reads for all others; None where each reads."""

    @property
    def blocked_s(self) -> float:
        """Of `work_s`, neither: waiting for storage or a lock; for a core too, if nobody tells."""
        return max(0.0, self.work_s - self.cpu_s - (self.core_wait_s or 0.0))

    @property
    def busy_share(self) -> float | None:
        """Of the time of all its threads, how much they had a microbatch in hand."""
        if not self.num_threads or self.step_s <= 0:
            return None
        return self.work_s / (self.num_threads * self.step_s)
