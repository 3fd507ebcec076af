"""What ranks tell each other while they build the model."""

from types import SimpleNamespace

import pytest

from pipeline.train.trained_model import bare_model
from pipeline.train.trained_model.bare_model import build_together
from slurm_jobs.base.errors import StageConfigError


class TalkingRanks:
    """One of two ranks, which writes down how it talks to the other."""

    rank = 1
    num_ranks = 2

    def __init__(self):
        self.said = []

    def meet(self, what, *, speaks):
        self.said.append(f"meet {what}")

    def gather(self, value):
        self.said.append("gather")
        return []

    def from_main(self, value):
        self.said.append("from_main")
        return ["no such model", None]


def test_rank_0_may_read_for_longer_than_a_collective_waits(monkeypatch):
    """The ranks meet without a timeout before they exchange their problems."""
    monkeypatch.setattr(bare_model, "check_dtypes", lambda *_: None)
    monkeypatch.setattr(bare_model, "make_shell", lambda *_: None)
    monkeypatch.setattr(bare_model, "_prepare_layers", lambda *_: None)
    monkeypatch.setattr(bare_model, "check_can_be_shared", lambda _: None)
    ranks = TalkingRanks()
    with pytest.raises(StageConfigError, match="no such model"):
        build_together(SimpleNamespace(), None, ranks, None, loads_once=True)
    assert ranks.said == ["meet model_build", "gather", "from_main"]
