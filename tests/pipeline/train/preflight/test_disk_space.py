"""Room on disk for checkpoints and the export."""

from __future__ import annotations

from pathlib import Path

from pipeline.train.preflight.disk_space import disk_warning

GB = 10**9


def disk(free_gb: float, num_present: int = 0) -> str | None:
    return disk_warning(
        checkpoint_bytes=10 * GB,
        keep_last=2,
        num_present=num_present,
        export_bytes=5 * GB,
        free_bytes=int(free_gb * GB),
        folder=Path("/runs/a"),
    )


def test_room_on_disk_is_for_the_kept_checkpoints_one_more_and_the_export():
    assert disk(35) is None
    assert disk(34.9) == (
        "/runs/a has 34.90 GB free, but 35.00 GB are still to be written (checkpoints 3 "
        "x 10.00 GB, the export 5.00 GB): free space, or lower checkpoint.keep_last (2)"
    )
    assert "has 34.99 GB free, but 35.00 GB are" in disk(34.9999)
    # Those that are there already take no new room.
    assert disk(25, num_present=1) is None
    assert disk(15, num_present=2) is None
    assert "checkpoints 1 x" in disk(14, num_present=5)
