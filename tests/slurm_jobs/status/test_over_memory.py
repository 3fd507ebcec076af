"""A task that used more memory than it requested, at a site whose Slurm calls its end FAILED."""

import pytest

from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.status.slice_status import UNRECORDED, unrecorded_text

MIB = float(1 << 20)


def task(state: str = "FAILED", used: float | None = 900.0) -> TaskAccounting:
    return TaskAccounting(
        job_id="7",
        state=state,
        source="sacct",
        max_rss_bytes=None if used is None else used * MIB,
        requested_mem_bytes=512 * MIB,
    )


def test_a_task_over_its_memory_is_named_with_both_sizes() -> None:
    text = unrecorded_text(task())
    assert text.startswith("FAILED after it had used 900 MiB of the 512 MiB of memory")
    assert "resources.mem_gb" in text


@pytest.mark.parametrize("other", [task(used=100.0), task(used=None), task("NODE_FAIL")])
def test_other_ends_without_a_record_do_not_blame_memory(other: TaskAccounting) -> None:
    assert unrecorded_text(other) == f"{other.state} {UNRECORDED}"
