"""Readings of a node as its sampler would have written them, beside fabricated steps."""

from pathlib import Path

from slurm_jobs.formats.timings.step_records import read_steps, steps_path
from slurm_jobs.formats.timings.system_readings import ReadingPacker, system_path

GIB = 1024.0**3


def write_readings(
    timing_dir: Path,
    *,
    host=None,
    gpu_busy=None,
    gpu_used_gib=6.0,
    gpu_gib=16.0,
    cores=8,
    node=0,
    link_bits_per_s=None,
):
    """A reading a second from before the first step to after the last.

    Args:
        timing_dir: of an attempt whose rank 0 has recorded steps.
        host: by the name of a field, a value or a function of the number of the reading.
        gpu_busy: a value, or such a function, of each of 2 GPUs; None: there are none.
        gpu_used_gib: that all GPUs have in use.
        gpu_gib: that they have.
        cores: that the job may use.
        node: its number.
        link_bits_per_s: of the only link that is up; None: it does not say.
    """
    steps = read_steps(steps_path(timing_dir, 0)).steps
    begin, end = float(steps["start_unix_s"][0]), float(steps["start_unix_s"][-1])
    num_gpus = 0 if gpu_busy is None else 2
    packer = ReadingPacker(num_gpus)
    gpus = [
        {"uuid": f"g{i}", "name": "V100", "memory_bytes": gpu_gib * GIB} for i in range(num_gpus)
    ]
    links = [
        {"name": "eth0", "is_up": True, "bits_per_s": link_bits_per_s},
        {"name": "eth1", "is_up": False, "bits_per_s": 1e12},
    ]
    about = {"node_name": f"gpu-{node + 1:02d}", "cores": list(range(cores))}
    metadata = {**about, "gpus": gpus, "links": links}
    lines = [packer.header(metadata)]
    for number in range(int(end - begin) + 20):
        values = {name: _at(value, number) for name, value in (host or {}).items()}
        found = {
            "gpu_busy_share": [_at(gpu_busy, number)] * num_gpus,
            "gpu_memory_used_bytes": [gpu_used_gib * GIB] * num_gpus,
        }
        at = begin - 10 + number
        told = {"host": values, "gpus": found if gpus else {}}
        lines.append(packer.pack(number + 1, unix_s=at, interval_s=1.0, **told))
    system_path(timing_dir, node).write_bytes(b"".join(lines))


def _at(value, number):
    return value(number) if callable(value) else value
