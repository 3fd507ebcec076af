"""Configs of built-in stages are complete with their defaults."""

from pathlib import Path

from slurm_jobs.commands.spec_reading.read_spec import load

DEMO = Path(__file__).resolve().parents[3] / "configs" / "demo.yaml"


def test_configs_of_built_in_stages_are_complete_with_their_defaults() -> None:
    train = load(DEMO).spec.stages["train"].config
    assert train["device"] == "cpu"
    assert train["optimizer"]["learning_rate"] == 1.5e-3
    assert train["optimizer"]["beta1"] == 0.9
