"""What training tells the parts that it puts together."""

from types import SimpleNamespace

import pytest
import torch

from pipeline.data.batch import ModelNeeds
from pipeline.train import trainer
from pipeline.train.checkpoint import Restored
from slurm_jobs.shared.configs.train import TrainConfig


@pytest.mark.parametrize(("device", "gpu"), [("cpu", None), ("cuda:1", torch.device("cuda:1"))])
def test_reader_pins_memory_for_the_gpu_of_the_rank_and_for_no_cpu(monkeypatch, device, gpu):
    monkeypatch.setattr(trainer, "BatchReader", lambda dataset, plan, **options: options)
    training = SimpleNamespace(
        current=SimpleNamespace(config=TrainConfig(num_steps=1), dataset=None, plan=None),
        ranks=SimpleNamespace(rank=0, num_ranks=1),
        workplace=SimpleNamespace(device=torch.device(device)),
        made=SimpleNamespace(needs=ModelNeeds()),
    )
    assert trainer.Trainer.make_reader(training, 0)["gpu"] == gpu


def test_no_look_is_made_with_weights_that_were_not_loaded():
    passed_over = Restored(step=3, loss=0.5, is_loaded=False)
    training = SimpleNamespace(
        job=None, current=SimpleNamespace(resumed=passed_over), _share=object(), look=None
    )
    trainer.Trainer._begin_looks(training)
    assert training.look is None
