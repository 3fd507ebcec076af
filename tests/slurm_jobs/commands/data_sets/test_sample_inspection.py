"""Problems of samples are found and named with their sample, within the limit that is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.data_sets.made_datasets import dataset_dir, folder, unlearn

__all__ = ["command", "dataset_dir", "folder"]


def test_wrong_sample_is_1_and_named_with_the_command_that_shows_it(
    folder: Path, command: Command
) -> None:
    unlearn(folder, 5)
    code, out, _ = command("samples", folder, "--num", 0)
    assert code == 1
    *_, audited, finding, remedy = out.splitlines()
    assert audited == "audited 23 samples: 1 problem found"
    assert finding.endswith("sample 000000005: no token is supervised: nothing is learned from it")
    assert remedy.endswith(f"samples {folder} --key 000000005")
    code, out, _ = command("samples", folder, "--key", "000000005", "--key", 3)
    assert code == 1
    assert out.count("\nsample 00000000") == 2


@pytest.mark.slow
def test_limit_is_reported(folder: Path, command: Command) -> None:
    _, out, _ = command("samples", folder, "--limit", 5)
    assert out.endswith("audited the first 5 of 23 samples: no problems found\n")
