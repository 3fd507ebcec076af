"""Files of classifier heads from strangers."""

from __future__ import annotations

import pytest

from pipeline.models.finetuning.classifier_heads import HEADS_WEIGHTS, LEVELS_NAME, load_heads
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.models.forged import forge
from tests.pipeline.models.towers import build


def test_a_pickle_in_the_place_of_heads_is_not_run(tmp_path):
    made = tmp_path / "made"
    level = '[{"name": "a", "key": "a", "head": "classes", "classes": ["x", "y"]}]'
    (tmp_path / LEVELS_NAME).write_text(level)
    forge(tmp_path / HEADS_WEIGHTS, made, "archive")
    with pytest.raises(StageConfigError, match="its heads cannot be read"):
        load_heads(build(None, None), tmp_path)
    assert not made.exists()
