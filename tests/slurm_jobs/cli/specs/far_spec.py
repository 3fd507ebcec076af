"""A spec for Slurm, on a machine that has none of its commands."""

from pathlib import Path

import pytest

SPEC = """
name: far
cluster: auto
stages:
  a: {shell: "true", resources: {gpus_per_node: 1, timeout_min: 60}}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec for Slurm, on a machine that has none of its commands."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    return file
