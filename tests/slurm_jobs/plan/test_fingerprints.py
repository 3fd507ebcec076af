"""What decides a stage's output."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.plan.fingerprints import changed_fields, deciding_fields, without_new_defaults
from slurm_jobs.spec.model import RunSpec

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


TRAIN = {
    "model": {"type": "small_vlm"},
    "global_batch_size": 8,
    "evaluate": {"manifest": "/rows.jsonl"},
    "phases": [{"name": "one", "num_steps": 40}, {"name": "two", "num_steps": 60}],
}
"""Config of a training with nested configs of each kind: always there, optional, in a list."""
NEW_KEYS: tuple[tuple[str | int, ...], ...] = (
    ("attention",),
    ("tf32",),
    ("staging",),
    ("evaluate", "columns"),
    ("batching", "max_images"),
    ("phases", 0, "optimizer"),
)


def _spec(**changes: Any) -> RunSpec:
    """Return a complete spec whose training has `changes` in its config."""
    config = json.loads(json.dumps(asdict(build_config(TrainConfig, TRAIN)))) | changes
    stages = {"train": {"run": "train", "config": config}}
    return RunSpec.model_validate({"name": "a", "cluster": "local", "stages": stages})


def _older(spec: RunSpec) -> RunSpec:
    """Return the spec as a version that did not know `NEW_KEYS` would have stored it."""
    older = spec.model_copy(deep=True)
    for *path, key in NEW_KEYS:
        values: Any = older.stages["train"].config
        for step in path:
            values = values[step]
        del values[key]
    return older


def _fields(spec: RunSpec) -> dict[str, str]:
    return dict(deciding_fields(spec.stages["train"], spec, {}, ""))


def test_keys_unknown_to_an_older_version_change_nothing_at_their_defaults() -> None:
    today = _spec()
    older = _older(today)
    assert _fields(today) != _fields(older)
    assert without_new_defaults(today, older) == older
    assert without_new_defaults(today, today) == today
    longer = _spec(seed=3)
    assert changed_fields(_fields(older), _fields(without_new_defaults(longer, older))) == [
        "config.seed"
    ]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"tf32": True}, ["config.tf32"]),
        ({"attention": "eager", "seed": 3}, ["config.attention", "config.seed"]),
        ({"evaluate": None}, None),
        ({"phases": []}, ["config.phases"]),
    ],
)
def test_a_new_key_with_another_value_and_a_changed_old_key_count(
    changes: dict[str, Any], keys: list[str] | None
) -> None:
    older = _older(_spec())
    now = _fields(without_new_defaults(_spec(**changes), older))
    changed = changed_fields(_fields(older), now)
    if keys is None:
        assert set(changed) >= {"config.evaluate", "config.evaluate.manifest"}
    else:
        assert changed == keys


def test_a_phase_keeps_the_keys_that_it_was_given() -> None:
    """There, a missing key means the value of the training, not the key's default."""
    today = _spec()
    phases = deepcopy(today.stages["train"].config["phases"])
    phases[0]["batching"] = {"max_images": None}
    older = deepcopy(phases)
    older[0]["batching"] = {}
    given = without_new_defaults(_spec(phases=phases), _spec(phases=older))
    assert given.stages["train"].config["phases"] == phases


def test_configs_of_other_stages_keep_all_keys(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def run(config, context): ...\n")
    (tmp_path / "s.yaml").write_text(SPEC.replace("WITHIN", "null"))
    spec = load(tmp_path / "s.yaml").spec
    older = spec.model_copy(deep=True)
    older.stages["p"].config.clear()
    assert without_new_defaults(spec, older) == spec
