"""What training tells the parts that it puts together."""

from types import SimpleNamespace

import pytest
import torch

from pipeline.data.batch import ModelNeeds
from pipeline.training import fit
from slurm_jobs.common.stage_config.train import TrainConfig


@pytest.mark.parametrize(("device", "gpu"), [("cpu", None), ("cuda:1", torch.device("cuda:1"))])
def test_reader_pins_memory_for_the_gpu_of_the_rank_and_for_no_cpu(monkeypatch, device, gpu):
    monkeypatch.setattr(fit, "BatchReader", lambda dataset, plan, **options: options)
    job = SimpleNamespace(
        config=TrainConfig(num_steps=1),
        ranks=SimpleNamespace(rank=0, num_ranks=1),
        workplace=SimpleNamespace(device=torch.device(device)),
    )
    assert fit._make_reader(job, None, None, ModelNeeds(), 0)["gpu"] == gpu
