"""All ranks fail together before training."""

from __future__ import annotations

from slurm_jobs.base.errors import StageConfigError


def test_every_rank_fails_before_training_on_a_shared_gpu(monkeypatch, make_train_run):
    monkeypatch.setenv("GPU_UUID", "one")
    run = make_train_run(num_steps=1)
    run.attempt = 1
    shared = {"main_port": run.new_port(), "config": run.config}
    contexts = [run.context(rank, 2, **shared) for rank in range(2)]
    ranks = [run.spawn("shared_gpu_rank.py", *pair) for pair in enumerate(contexts)]
    ends = run.finish(ranks)
    assert [code for code, _ in ends] == [StageConfigError.exit_code] * 2
    for _, printed in ends:
        assert "ranks 0-1 (node-0) would compute on one GPU" in printed
