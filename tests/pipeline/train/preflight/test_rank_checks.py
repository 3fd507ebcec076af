"""What each rank checks before a step: positions of samples and answers, and copies in memory."""

from __future__ import annotations

import dataclasses
import json
import shutil
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from pipeline.data.dataset import open_dataset
from pipeline.timing.span_log import SpanLog
from pipeline.train.device.device_facts import read_device
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.job import Job
from pipeline.train.memory.tensor_sizes import ModelSizes
from pipeline.train.phase import phases_of
from pipeline.train.preflight.rank_checks import RankChecks, node_warning
from slurm_jobs.base.errors import StageConfigError
from tests.contexts import make_context
from tests.pipeline.train.configs import config_of
from tests.pipeline.train.conftest import TINY_MODEL
from tests.pipeline.train.memory.needs import NEED
from tests.pipeline.train.strategies.trainer import Alone, Trainer, rank_device_of

MB, GB = 10**6, 10**9


@pytest.mark.parametrize(
    ("mode", "node_mib", "warns"),
    [("async", 2000, True), ("sync", 2000, False), ("async", 2400, False)],
)
def test_copies_of_checkpoints_are_counted_if_written_in_the_background(
    tmp_path, monkeypatch, mode, node_mib, warns
):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", str(node_mib))
    job = SimpleNamespace(
        context=dataclasses.replace(make_context("train", tmp_path), num_local_ranks=2),
        config=config_of(checkpoint={"mode": mode}),
        rank_device=RankDevice(
            device=torch.device("cuda"), precision="bf16", num_compute_threads=1
        ),
    )
    without_work = dict.fromkeys(("computing_bytes", "activations_bytes"), 0)
    state = {"weights_bytes": 400 * MB, "gradients_bytes": 400 * MB, "optimizer_bytes": 800 * MB}
    sizes = ModelSizes(parameters=(), buffer_bytes=0, hidden_size=1, num_layers=1)
    small = dataclasses.replace(NEED, **state, **without_work)
    warning = node_warning(job, small, sizes, "train less")
    assert (warning is not None) == warns
    if warning:
        assert "must hold 2.40 GB or more, but SLURM_MEM_PER_NODE gives 2.10 GB" in warning
        assert warning.endswith("train less; or save at once (`checkpoint: {mode: sync}`)")


@pytest.fixture(scope="module")
def longest(demo_data):
    return int(open_dataset(demo_data / "consolidate").index.num_tokens.max())


def small(max_positions: int) -> dict:
    return {**TINY_MODEL, "language": {**TINY_MODEL["language"], "max_positions": max_positions}}


def test_samples_longer_than_the_positions_of_the_model_are_refused(longest, make_train_run):
    words = rf"the longest sample has {longest} tokens, but the language model has 10 positions"
    with pytest.raises(StageConfigError, match=words) as caught:
        make_train_run(model=small(10)).run_here()
    remedy = f"preprocess with max_tokens: 10, or set model.language.max_positions: {longest}"
    assert remedy in str(caught.value)


@pytest.mark.parametrize("is_warned", [True, False])
def test_answers_of_the_evaluation_beyond_the_positions_are_warned_of(
    longest, heldout, make_train_run, is_warned
):
    positions = longest if is_warned else 4096
    evaluate = {"manifest": heldout, "max_new_tokens": 2}
    run = make_train_run(model=small(positions), num_steps=1, evaluate=evaluate)
    result = run.run_here()
    assert result["num_steps"] == 1
    words = f"the language model has {positions:,} positions"
    assert is_warned == any(words in warning for warning in result["preflight"]["warnings"])


def test_the_limit_of_a_folder_is_named_by_its_file(plain, make_train_run, tmp_path):
    model = shutil.copytree(plain.output_dir / "model", tmp_path / "model")
    file = model / "config.json"
    values = json.loads(file.read_text())
    values["language"]["max_position_embeddings"] = 12
    file.write_text(json.dumps(values))
    run = make_train_run(model={"path": str(model)})
    with pytest.raises(StageConfigError, match=r"has 12 positions .* in a copy of .*config\.json"):
        run.run_here()


@pytest.mark.parametrize(("batching", "num_notes"), [("packed", 1), ("shuffled", 0)])
def test_a_note_says_that_packed_samples_have_states_of_their_own(
    make_kind, tmp_path, batching, num_notes
):
    kind = make_kind("qwen3_5")
    trainer = Trainer(kinds={kind.name: kind}, ranks=Alone(), folder=tmp_path)
    config = trainer.config(kind.name, strategy="single", batching={"kind": batching})
    job = Job(
        config=config,
        context=make_context("train", tmp_path),
        spans=SpanLog(tmp_path, 0),
        rank_device=rank_device_of(config),
        ranks=Alone(),
        began_unix_s=0.0,
    )
    device = read_device(job.rank_device.device)
    checks = RankChecks(job, phases_of(config), [kind.dataset_dir], kind.facts, device)
    checks.run()
    notes = [note for note in checks.notes if note.startswith("gated delta nets: each packed")]
    assert len(notes) == num_notes
    for note in notes:
        assert ("causal-conv1d" in note) == (find_spec("causal_conv1d") is None)
