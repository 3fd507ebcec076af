"""Losses by manifest in step records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slurm_jobs.formats.timings.manifest_losses import (
    MANIFESTS_KEY,
    ManifestLoss,
    manifest_values,
    recorded_manifests,
)
from slurm_jobs.formats.timings.step_records import (
    STEP_FIELDS,
    pack_step,
    read_steps,
    steps_header,
    steps_path,
)


def test_losses_are_read_as_they_were_written_and_a_cut_record_is_dropped(tmp_path: Path) -> None:
    values = {name: 1.0 if code[0] == "f" else 1 for name, code in STEP_FIELDS}
    losses = [ManifestLoss(2.5, 7), ManifestLoss(float("nan"), 0)]
    records = [
        pack_step({**values, "step": step, **manifest_values(of_step, 2)}, num_manifests=2)
        for step, of_step in enumerate([losses, []])
    ]
    path = steps_path(tmp_path, 0)
    path.write_bytes(
        steps_header({MANIFESTS_KEY: ["a", "b"]}) + b"".join(records) + records[0][:-9]
    )
    file = read_steps(path)
    assert recorded_manifests(file.metadata) == ("a", "b")
    assert file.steps["manifest_0_loss"].tolist() == [2.5, pytest.approx(np.nan, nan_ok=True)]
    assert file.steps["manifest_0_targets"].tolist() == [7, 0]
    assert file.steps["manifest_1_targets"].tolist() == [0, 0]
    assert file.steps["memory_peak_bytes"].tolist() == [1, 1]


def test_a_header_with_more_manifests_than_its_records_is_damaged(
    tmp_path: Path,
) -> None:
    path = steps_path(tmp_path, 0)
    header = steps_header({MANIFESTS_KEY: ["a", "b"]})
    path.write_bytes(header.replace(b'["a", "b"]', b'["a", "b", "c"]'))
    with pytest.raises(ValueError, match="its records lack manifest_2_loss, manifest_2_targets"):
        read_steps(path)


@pytest.mark.parametrize("names", [None, "ab", {"a": 1}, ["a", 1], 3])
def test_a_damaged_header_names_no_manifests(names: object) -> None:
    assert recorded_manifests({MANIFESTS_KEY: names}) == ()
