"""Traces that are damaged or far too large are named."""

import gzip

import pytest

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.report.profiles.profile_trace import read_trace
from tests.slurm_jobs.report.profiles.gpu_steps import GPU_STEP
from tests.slurm_jobs.report.profiles.made_up import event, write_trace


def flip_middle(data):
    middle = len(data) // 2
    flipped = bytes(byte ^ 0x5A for byte in data[middle : middle + 40])
    return data[:middle] + flipped + data[middle + 40 :]


def with_moment(moment):
    return [*GPU_STEP, {**event("kernel", "k", 1, 2), "ts": moment}]


@pytest.mark.parametrize(
    ("events", "spoil"),
    [
        pytest.param(GPU_STEP, lambda data: data[:-20], id="cut short"),
        pytest.param(GPU_STEP, lambda _: b"no gzip", id="no gzip"),
        pytest.param(GPU_STEP, lambda _: b"", id="empty"),
        pytest.param(GPU_STEP, lambda _: gzip.compress(b"[1, 2]"), id="no trace"),
        pytest.param(GPU_STEP * 40, flip_middle, id="damaged in its middle"),
        *(
            pytest.param(with_moment(moment), bytes, id=f"moment {str(moment)[:5]}")
            for moment in ("x", [1], float("nan"), 10**400)
        ),
    ],
)
def test_a_trace_that_is_damaged_is_named(tmp_path, events, spoil):
    path = write_trace(tmp_path / "t.gz", *events)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DamagedFileError, match=r"t\.gz: no whole Chrome trace"):
        read_trace(path)


def test_a_small_file_that_inflates_to_gigabytes_is_no_trace(tmp_path):
    path = tmp_path / "t.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(64):
            stream.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DamagedFileError, match="more than 16 MiB is not read"):
        read_trace(path, most_bytes=16 << 20)
