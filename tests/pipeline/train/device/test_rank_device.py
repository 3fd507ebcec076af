"""The threads and the GPU of a rank."""

from __future__ import annotations

import pytest

from pipeline.train.device.rank_device import prepare_device, threads_per_rank
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig
from tests.contexts import make_context


def test_threads_are_what_slurm_gave_else_a_share_of_the_node():
    assert threads_per_rank("3", num_cpus=64, num_local_ranks=4) == 3
    assert threads_per_rank(None, num_cpus=64, num_local_ranks=4) == 16
    assert threads_per_rank(None, num_cpus=2, num_local_ranks=4) == 1


@pytest.mark.parametrize(
    ("local_rank", "num_visible", "index"),
    [(0, 4, 0), (3, 4, 3), (3, 1, 0), (3, 2, 1)],  # a node's GPUs, one of its own, two of its own
)
def test_a_rank_uses_the_gpu_of_its_number_among_those_it_sees(
    monkeypatch, tmp_path, local_rank, num_visible, index
):
    chosen = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: num_visible)
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _device: (8, 0))
    context = make_context("train", tmp_path, local_rank=local_rank, num_local_ranks=4)
    prepare_device(TrainConfig(num_steps=1), context)
    assert [device.index for device in chosen] == [index]


def test_cuda_without_a_gpu_fails_at_once(make_train_run):
    run = make_train_run()
    with pytest.raises(StageConfigError, match=r"CUDA_VISIBLE_DEVICES.*device: cpu"):
        run.run_here(device="cuda")
    assert not (run.output_dir / "checkpoints").exists()
