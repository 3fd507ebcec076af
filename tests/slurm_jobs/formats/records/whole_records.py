"""Records of an attempt with values in all fields."""

from typing import Any

from slurm_jobs.formats.records.attempt_records import AttemptRecord, CompletionRecord

COMMON: dict[str, Any] = {
    "stage": "train",
    "slice_index": 3,
    "attempt": 2,
    "job_id": "12_3",
    "token": "0123abcd",
    "fingerprint": "f",
    "started_unix_s": 1.5,
}
ATTEMPT = AttemptRecord(
    **COMMON,
    node_names=("n1", "n2"),
    host="h",
    pid=7,
    num_ranks=4,
    scheduler="slurm",
    restart=1,
)
COMPLETION = CompletionRecord(
    **COMMON,
    outcome="failed",
    ended_unix_s=2.5,
    exit_code=137,
    signal=9,
    failed_rank=1,
    failed_node="n2",
    reason="rank 1 on n2 was killed by SIGKILL",
    result={"outputs": {"a": 1}},
)
