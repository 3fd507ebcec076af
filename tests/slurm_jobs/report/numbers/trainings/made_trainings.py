"""Numbers of trainings whose step records are made up."""

from __future__ import annotations

from slurm_jobs.formats.records.attempt_records import AttemptRecord
from tests.slurm_jobs.report.builders import rank_timing, training_of


def numbers_of(attempts, fingerprints=(), **said):
    """The numbers of a stage with the given records: a list of attempts, each a list of ranks."""
    timings = [
        rank_timing(attempt, rank, steps, **said)
        for attempt, ranks in enumerate(attempts, 1)
        for rank, steps in enumerate(ranks)
    ]
    records = tuple(
        AttemptRecord(
            stage="train", slice_index=0, attempt=number, job_id="7", token="t7", pid=1, host="n1",
            fingerprint=fingerprint, started_unix_s=0.0, node_names=("n1",), num_ranks=1, restart=0,
            scheduler="local",
        )
        for number, fingerprint in enumerate(fingerprints, 1)
    )  # fmt: skip
    return training_of(*timings, attempts=records)
