"""What training tells the parts that it puts together."""

from types import SimpleNamespace

import pytest
import torch

from pipeline.training import fit
from slurm_jobs.common.stage_config.train import TrainConfig


@pytest.mark.parametrize(("device", "gpu"), [("cpu", None), ("cuda:1", torch.device("cuda:1"))])
def test_reader_pins_memory_for_the_gpu_of_the_rank_and_for_no_cpu(monkeypatch, device, gpu):
    monkeypatch.setattr(fit, "BatchReader", lambda dataset, **options: options)
    job = SimpleNamespace(
        config=TrainConfig(num_steps=1),
        ranks=SimpleNamespace(rank=0, num_ranks=1),
        workplace=SimpleNamespace(device=torch.device(device)),
    )
    assert fit._make_reader(job, None, 0)["gpu"] == gpu


@pytest.mark.parametrize(
    ("num_epochs", "num_samples", "global_batch_size", "num_steps"),
    [(0.29, 100, 1, 29), (1.15, 200, 2, 115), (1, 100, 8, 12), (2.3, 100, 10, 23)],
)
def test_no_step_of_the_epochs_is_lost_to_rounding(
    num_epochs, num_samples, global_batch_size, num_steps
):
    sizes = {"global_batch_size": global_batch_size, "num_lanes": 1}
    config = TrainConfig(num_epochs=num_epochs, **sizes)
    assert fit.steps_to_make(config, num_samples) == num_steps
