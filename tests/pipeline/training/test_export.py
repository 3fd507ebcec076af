"""Weights read back after saving."""

import re

import pytest
import torch
from safetensors.torch import save_file

from pipeline.training.export import check_weights
from slurm_jobs.common.errors import StageError


def test_dropped_and_changed_tensors_are_found_after_saving(tmp_path):
    weights = {"a": torch.ones(2), "b": torch.ones(2), "c": torch.tensor([float("nan")])}
    save_file({"a": torch.ones(2), "b": torch.zeros(2), "c": weights["c"]}, tmp_path / "w")
    with pytest.raises(StageError, match=re.escape("(missing: d; different: b)")):
        check_weights(tmp_path / "w", weights, {"a", "b", "c", "d"})
