"""Records of a node's load: one fixed-size reading every second or so.

One rank of each node appends them to `node-00000.system`: a JSON header line that names the
fields, then packed little-endian records. A file that a kill truncates loses at most its last
reading. A value that could not be read is NaN.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.json_values import END_OF_TIME_S, is_number
from slurm_jobs.base.regular_files import MOST_MEASURED_BYTES, open_regular, rest_of
from slurm_jobs.formats.timings.record_headers import (
    header_line,
    num_before_damage,
    read_header_line,
    read_records,
)

if TYPE_CHECKING:
    import numpy as np


FORMAT_NAME = "slurm-jobs-system-1"

MAX_GPUS = 16
"""Limit for the GPUs of one node; more are not read."""

HOST_FIELDS = (
    "cpu_busy_share",  # of the cores that the job may use, all processes; 1 is all of them
    "cpu_iowait_share",  # idle, with a disk request of their own outstanding
    "memory_available_bytes",  # of the node, the page cache counted as free
    "disk_read_bytes_per_s",  # of all disks of the node
    "disk_write_bytes_per_s",
    "local_disk_read_bytes_per_s",  # of the disk behind the node-local folder
    "local_disk_write_bytes_per_s",
    "network_receive_bytes_per_s",  # of all network cards, as the kernel's network stack counts
    "network_send_bytes_per_s",
    "infiniband_receive_bytes_per_s",  # of all ports, also traffic that bypasses the kernel (RDMA)
    "infiniband_send_bytes_per_s",
    "job_cpu_s_per_s",  # processor time of the job's own processes here: cores kept busy
    "job_resident_bytes",  # their memory; a page that two share counts twice
)
"""Float32 fields, one number for each reading."""

GPU_FIELDS = (
    "gpu_busy_share",  # of the time, any kernel ran: 1 does not mean that all of the GPU did
    "gpu_memory_busy_share",  # of the time, its memory was read or written
    "gpu_memory_used_bytes",  # by all processes
    "gpu_power_w",
)
"""Float32 fields, one number for each reading and GPU, in the order of `gpus` in the metadata."""


def system_path(timing_dir: Path, node_rank: int) -> Path:
    """Return the file with the readings of node `node_rank` of the job."""
    return timing_dir / f"node-{node_rank:05d}.system"


def _fields(num_gpus: int) -> list[tuple[str, str, int | None]]:
    """Return name, NumPy type and length of every field; None for a single number."""
    return [
        ("unix_s", "f8", None),  # wall clock at the end of the interval
        ("interval_s", "f4", None),  # since the reading before: rates and shares are means over it
        *((name, "f4", None) for name in HOST_FIELDS),
        *((name, "f4", num_gpus) for name in GPU_FIELDS),
        ("number", "i4", None),  # from 1; the last field, so that a record without its end shows
    ]


class ReadingPacker:
    """Encoder of readings with a fixed number of GPUs."""

    def __init__(self, num_gpus: int) -> None:
        self._num_gpus = num_gpus
        num_floats = 1 + len(HOST_FIELDS) + num_gpus * len(GPU_FIELDS)
        self._packer = struct.Struct(f"<d{num_floats}fi")

    def header(self, metadata: Mapping[str, Any]) -> bytes:
        """Return the first line of the file: format, fields, and facts about the node."""
        return header_line(FORMAT_NAME, _fields(self._num_gpus), metadata)

    def pack(
        self,
        number: int,
        *,
        unix_s: float,
        interval_s: float,
        host: Mapping[str, float],
        gpus: Mapping[str, Sequence[float]],
    ) -> bytes:
        """Return one reading; values that `host` or `gpus` lack are NaN."""
        unknown = [math.nan] * self._num_gpus
        values = [value for name in GPU_FIELDS for value in gpus.get(name, unknown)]
        known = (host.get(name, math.nan) for name in HOST_FIELDS)
        return self._packer.pack(unix_s, interval_s, *known, *values, number)


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemFile:
    """Content of a file of readings."""

    metadata: Mapping[str, Any]
    """`node_name`, `every_s`, `cores`, `gpus` (`uuid`, `name`, `memory_bytes`), `disks` and more.
    """
    readings: np.ndarray
    """Structured array, one entry for each reading: `unix_s`, `interval_s`, `HOST_FIELDS`,
    `GPU_FIELDS` (each [num_readings, num_gpus]), and `number`."""
    num_damaged: int = 0
    """Number of readings left out: the first damaged one, and all after it."""


def read_system(path: Path) -> SystemFile:
    """Read a file of readings up to the first damaged one; skip a truncated one at the end.

    Raises:
        ValueError: the file is not one of readings, or of another version.
    """
    import numpy as np

    with open_regular(path) as stream:
        header = read_header_line(stream, path, FORMAT_NAME, "file of readings")
        if not _are_fields(header.get("fields")) or not _are_node_facts(header.get("metadata")):
            message = f"{path}: damaged: its header has an invalid field or node"
            raise ValueError(message)
        dtype = np.dtype(
            [
                (name, "<" + code) if length is None else (name, "<" + code, (length,))
                for name, code, length in header["fields"]
            ]
        )
        readings = read_records(rest_of(stream, path, most_bytes=MOST_MEASURED_BYTES), dtype)
    is_valid = (readings["unix_s"] > 0) & (readings["unix_s"] < END_OF_TIME_S)
    is_valid &= readings["number"] == np.arange(1, len(readings) + 1)
    num_valid = num_before_damage(is_valid)
    num_damaged = len(readings) - num_valid
    return SystemFile(
        metadata=header["metadata"], readings=readings[:num_valid], num_damaged=num_damaged
    )


def _are_fields(rows: Any) -> bool:
    """Check whether they are the fields of a writer, for any number of GPUs."""
    written = ([list(field) for field in _fields(num_gpus)] for num_gpus in range(MAX_GPUS + 1))
    return any(rows == fields for fields in written)


def _are_node_facts(metadata: Any) -> bool:
    """Check whether cores, cards and links, if present, are values that a writer writes."""
    if not isinstance(metadata, dict) or not isinstance(metadata.get("cores") or [], list):
        return False
    gpus, links = metadata.get("gpus") or [], metadata.get("links") or []
    return (
        str(metadata.get("node_name") or "").isprintable()
        and _have_numbers(gpus, "memory_bytes")
        and _have_numbers(links, "bits_per_s")
        and all("is_up" in link for link in links)
    )


def _have_numbers(rows: Any, name: str) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, dict) and is_number(row.get(name) or 0) for row in rows
    )
