"""Measures of runs that were never made, for the PURE parts."""

from slurm_jobs.report.comparison.comparison_model import RunMeasure

GIGABYTE = 1e9


def measured(run_id="run", *, num_ranks=2, tokens_per_s=1000.0, **values):
    """A run with a global batch of 64, 30 tokens a sample, no card that is known."""
    given = {
        "run_id": run_id,
        "name": "shapes",
        "stage": "train",
        "num_ranks": num_ranks,
        "device": "cuda",
        "nodes": ("gpu-01",),
        "cards": (),
        "cpus": (),
        "num_steps": 500,
        "seconds": 100.0,
        "tokens_per_s": tokens_per_s,
        "samples_per_s": tokens_per_s / 30,
        "samples_per_step": 64.0,
        "tokens_per_sample": 30.0,
        "token_stretches": tuple(tokens_per_s * (1 + 0.01 * (-1) ** i) for i in range(10)),
        "apart_s": {"checkpoint_s": 1.0, "evaluation_s": 0.0, "compile_s": 0.0},
        "num_compiled_steps": 0,
        "memory_peak_bytes": 6 * GIGABYTE,
        "memory_capacity_bytes": None,
        "num_allocator_retries": 0,
        "last_loss": 0.2,
        "rank_hours": 2.0,
        "phase_shares": {"": 1.0},
        "settings": {"num_ranks": str(num_ranks), "train.config.precision": "fp16"},
    }
    return RunMeasure(**{**given, **values})
