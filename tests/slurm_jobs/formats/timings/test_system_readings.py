"""The file of a node's readings, as written and as damaged."""

from pathlib import Path

import numpy as np
import pytest

from slurm_jobs.formats.timings.system_readings import (
    GPU_FIELDS,
    HOST_FIELDS,
    ReadingPacker,
    read_system,
    system_path,
)


def write(path: Path, *, num_readings: int = 4, num_gpus: int = 2) -> int:
    """Returns the length of the header."""
    packer = ReadingPacker(num_gpus)
    header = packer.header({"node_name": "n1"})
    records = [
        packer.pack(
            number,
            unix_s=1.7e9 + number,
            interval_s=1.0,
            host={name: number + i for i, name in enumerate(HOST_FIELDS)},
            gpus={name: [number + 0.5] * num_gpus for name in GPU_FIELDS},
        )
        for number in range(1, num_readings + 1)
    ]
    path.write_bytes(header + b"".join(records))
    return len(header)


@pytest.mark.parametrize("num_gpus", [0, 1, 16])
def test_readings_come_back_as_they_were_with_a_column_for_each_gpu(
    tmp_path: Path, num_gpus: int
) -> None:
    path = system_path(tmp_path, 0)
    write(path, num_gpus=num_gpus)
    file = read_system(path)
    assert file.metadata == {"node_name": "n1"}
    assert file.readings["unix_s"].tolist() == [1.7e9 + n for n in (1, 2, 3, 4)]
    assert file.readings["cpu_busy_share"].tolist() == [1, 2, 3, 4]
    assert file.readings["job_resident_bytes"][0] == 1 + HOST_FIELDS.index("job_resident_bytes")
    assert file.readings["gpu_power_w"].shape == (4, num_gpus)
    assert (file.readings["gpu_power_w"] == np.array([[1.5], [2.5], [3.5], [4.5]])).all()
    assert file.num_damaged == 0


def test_what_was_not_read_is_nan_and_no_damage(tmp_path: Path) -> None:
    packer, path = ReadingPacker(1), system_path(tmp_path, 0)
    record = packer.pack(1, unix_s=1.7e9, interval_s=1.0, host={}, gpus={})
    path.write_bytes(packer.header({}) + record)
    (reading,) = read_system(path).readings
    assert np.isnan([reading[name] for name in HOST_FIELDS]).all()
    assert np.isnan([reading[name] for name in GPU_FIELDS]).all()


def test_a_file_cut_short_anywhere_loses_its_last_reading_alone(tmp_path: Path) -> None:
    path = system_path(tmp_path, 0)
    write(path)
    whole = path.read_bytes()
    size = read_system(path).readings.itemsize
    for num_bytes in range(1, size):
        path.write_bytes(whole[:-num_bytes])
        file = read_system(path)
        assert (len(file.readings), file.num_damaged) == (3, 0)


def test_zeros_that_a_crash_left_are_noticed_wherever_they_begin(tmp_path: Path) -> None:
    path = system_path(tmp_path, 0)
    start = write(path, num_readings=300)
    whole = path.read_bytes()
    size = read_system(path).readings.itemsize
    for num_sound in (0, 1, 297, 298):
        for offset in range(size - 3):  # what has lost three bytes more has lost none but zeros
            end = start + num_sound * size + offset
            path.write_bytes(whole[:end].ljust(len(whole), b"\0"))
            file = read_system(path)
            assert (len(file.readings), file.num_damaged) == (num_sound, 300 - num_sound)


@pytest.mark.parametrize("text", [b"", b"no header\n", b'{"format": "slurm-jobs-steps-1"}\n'])
def test_another_file_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    path = system_path(tmp_path, 0)
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"node-00000\.system"):
        read_system(path)
