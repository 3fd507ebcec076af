"""What decides a stage's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.commands.submit import load
from slurm_jobs.plan import deciding_fields

SPEC = """\
name: a
cluster: local
stages:
  p:
    run: "mine:run"
    config: {images_within: WITHIN, evaluate: {images_within: WITHIN}, other: null}
"""


@pytest.mark.parametrize(("within", "decides"), [("null", False), ("/pool", True)])
def test_a_key_that_older_runs_lack_decides_nothing_while_it_is_left_out(
    tmp_path: Path, within: str, *, decides: bool
) -> None:
    (tmp_path / "mine.py").write_text("def run(config, context): ...\n")
    (tmp_path / "s.yaml").write_text(SPEC.replace("WITHIN", within))
    spec = load(tmp_path / "s.yaml").spec
    fields = deciding_fields(spec.stages["p"], spec, {}, "")
    assert ("config.images_within" in fields) is decides
    assert ("config.evaluate.images_within" in fields) is decides
    assert "config.other" in fields
