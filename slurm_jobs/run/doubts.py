"""Message about jobs of which it is open whether they live, for commands that act."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.schedulers.agreement import AGREE_S
from slurm_jobs.schedulers.protocol import Doubt


def doubts_text(run: RunRecords, doubts: Mapping[JobKey, Doubt], problems: Sequence[str]) -> str:
    """Return which jobs may live, why that is open, and what to do.

    Args:
        run: the run, whose intents have the times of submission.
        doubts: of an answer, not empty.
        problems: of the same answer.
    """
    jobs = {intent.job: intent for intent in run.intents if intent.job is not None}
    kinds = set(doubts.values())
    ids = " ".join(sorted({key.job.job_id for key in doubts}, key=int))
    if "controller silent" in kinds:
        reasons = "; ".join(problems)
        return (
            f"Slurm's controller did not say whether jobs {ids} still live, and squeue alone may "
            f"be behind ({reasons}). A second job of the same work could start. Run the command "
            "again when `scontrol` answers"
        )
    newest = [jobs[key.job] for key in doubts if key.job in jobs]
    submitted_s = max(each.submitted_unix_s or each.time_unix_s for each in newest)
    until = time.strftime("%H:%M:%S", time.localtime(submitted_s + AGREE_S))
    return (
        f"by sacct, jobs {ids} are queued or running, and Slurm's controller does not know them. "
        "One of the two is behind, and a second job of the same work could start. Run the command "
        f"again in a minute; after {until} the controller's word counts"
    )
