"""Identity of a job: its id together with the name under which it was submitted. PURE.

Slurm gives job ids again: after its controller has lost its state, and when the ids have reached
`MaxJobId`. The name holds the token of the job's intent, which is unique, but Slurm's commands
take ids. So what a scheduler knows of jobs is kept by both, and a look-up by the id alone is
impossible.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class JobKey:
    """Job, or one element of a job array."""

    name: str
    """Name that the job was submitted with, whatever a user or a site has renamed it to."""
    job_id: str
    """Id as squeue shows it: `12`, or `12_3` for an element."""

    @property
    def job(self) -> JobKey:
        """Return the whole job, for an element of an array."""
        return JobKey(self.name, self.job_id.partition("_")[0])
