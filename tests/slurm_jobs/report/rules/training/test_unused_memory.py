"""Device memory that a training leaves unused is named with the setting that uses it."""

from __future__ import annotations

from tests.slurm_jobs.report.builders import finding, outcomes
from tests.slurm_jobs.report.loaded_nodes import cpus, loaded

__all__ = ["loaded"]

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


def test_spare_memory_is_a_note_on_small_batches(loaded):
    plain = loaded(readings={"gpu_busy": 0.95, "gpu_gib": 40.0})
    assert finding(plain, "small-batch").severity == "note"
    assert outcomes(plain, "activation-checkpointing") == ("clear",)


def test_activation_checkpointing_with_memory_to_spare(loaded):
    config = {"activation_checkpointing": True}
    report = loaded(readings={"gpu_busy": 0.95, "gpu_gib": 40.0}, config=config)
    found = finding(report, "activation-checkpointing")
    assert found.ceiling == "no second forward pass: at most 1.34 times the speed"
    assert found.confidence.startswith("low")


def test_the_seeds_batch_of_one_accumulated_without_workers(loaded):
    """3 s a step of 16 microbatches, one loader thread, and memory for more at once."""
    report = loaded(
        data_wait_s=1.0,
        microbatches=16,
        readings={**cpus(0.12), "gpu_busy": 0.5, "gpu_gib": 16.0},
        config={"num_loader_threads": 1},
    )
    assert "too few threads" in finding(report, "data-wait").text
    assert finding(report, "data-wait").next_knob.startswith("Raise num_loader_threads")
    found = finding(report, "accumulation")
    assert found.evidence[0].startswith("16 microbatches per step; peak 5.77 GiB of 16.0 GiB")
    assert outcomes(report, "small-batch") == ("clear",)
