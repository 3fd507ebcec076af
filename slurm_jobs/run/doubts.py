"""Messages about jobs of which it is open whether they live."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import RunRecords
from slurm_jobs.schedulers.agreement import AGREE_S
from slurm_jobs.schedulers.protocol import Doubt

_MOST_IDS = 10


def forgotten_note(run: RunRecords, doubts: Mapping[JobKey, Doubt]) -> str | None:
    """Return which of a run's jobs only the accounting has alive, and until when that counts.

    Without it the run would seem to wait in a queue that is empty. None if there are none.
    """
    forgotten = {key.job for key, doubt in doubts.items() if doubt == "controller forgot"}
    intents = [intent for intent in run.intents if intent.job in forgotten]
    if not intents:
        return None
    ids = sorted({intent.job.job_id for intent in intents if intent.job is not None}, key=int)
    more = f" and {len(ids) - _MOST_IDS} more" if len(ids) > _MOST_IDS else ""
    return (
        f"sacct lists jobs {' '.join(ids[:_MOST_IDS])}{more} as alive, but Slurm's controller does "
        "not know them, perhaps because it lost its state. They count as alive until "
        f"{_agreed_by(intents)}, because the controller may still learn about them from its nodes. "
        "After that, `resume` can submit their work again"
    )


def _agreed_by(intents: Iterable[Intent]) -> str:
    """Return the time from which the controller's word counts about jobs."""
    submitted_s = max(intent.submitted_unix_s or intent.time_unix_s for intent in intents)
    return time.strftime("%H:%M:%S", time.localtime(submitted_s + AGREE_S))


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
    until = _agreed_by(jobs[key.job] for key in doubts if key.job in jobs)
    return (
        f"by sacct, jobs {ids} are queued or running, and Slurm's controller does not know them. "
        "One of the two is behind, and a second job of the same work could start. Run the command "
        f"again in a minute; after {until} the controller's word counts"
    )
