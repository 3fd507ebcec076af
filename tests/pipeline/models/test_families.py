"""Families of models that can be trained, and types that are none."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import cache_utils

from pipeline.models.build import load_model, make_unloaded
from slurm_jobs.base.errors import StageConfigError


def test_model_of_an_unknown_type_or_none_is_refused(make_kind, tmp_path):
    facts = make_kind("llava").facts
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(
        StageConfigError, match="model_type 'bert' cannot be trained; supported are"
    ):
        load_model(tmp_path, facts)
    (tmp_path / "config.json").unlink()
    with pytest.raises(StageConfigError, match=r"no readable config\.json"):
        load_model(tmp_path, facts)


def test_shared_keys_are_refused_if_transformers_loses_them(make_kind, monkeypatch):
    kind = make_kind("gemma4")
    monkeypatch.delattr(cache_utils, "KVSharingDict")
    with pytest.raises(StageConfigError, match=r"share keys, .* install 5\.23 or later"):
        make_unloaded(kind.config, kind.facts, torch.device("meta"))
