"""Programs called squeue and sacct that say what a test tells them to.

The real ones cannot be made to lag, to lose an end, or to be switched off while jobs run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_jobs.schedulers.protocol import Question
from slurm_jobs.schedulers.slurm import SACCT_FIELDS
from slurm_jobs.shared.job_key import JobKey

ACCOUNTS_OFF = "Slurm accounting storage is disabled"
DATABASE_DOWN = (
    "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to "
    "host:localhost:6819: Connection refused\n"
    "sacct: error: Problem talking to the database: Connection refused"
)
QUEUE_HEADER = "JOBID|ARRAY_JOB_ID|STATE|REASON|SUBMIT_TIME|START_TIME|NODELIST|NAME|COMMAND\n"
NAMES_HEADER = "JOBID|STATE|NODELIST|NAME\n"
_HEADERS = {"squeue": QUEUE_HEADER, "sacct": "|".join(SACCT_FIELDS) + "\n"}


@dataclass(frozen=True)
class FakeSlurm:
    """A folder of programs at the head of PATH; each call is noted."""

    folder: Path

    def says(
        self,
        program: str,
        text: str,
        *,
        errors: str = "",
        exit_code: int = 0,
        header: bool = True,
    ) -> None:
        """What the program prints from now on, and how it ends.

        `header`: squeue and sacct print the header of the table that they are asked for first.
        """
        (self.folder / f"{program}.out").write_text(text)
        (self.folder / f"{program}.err").write_text(errors)
        first = _HEADERS.get(program, "") if header and not exit_code else ""
        (self.folder / f"{program}.header").write_text(first)
        names = f'echo "{NAMES_HEADER.strip()}"' if first else ":"
        script = (
            f'#!/bin/bash\nprintf "%s\\n" "{program} $*" >> "{self.folder}/calls"\n'
            f'case " $* " in *" --noheader "*|*" -n "*) ;; *" --name "*) {names} ;; '
            f'*) cat "{self.folder}/{program}.header" ;; esac\n'
            f'cat "{self.folder}/{program}.out"\ncat "{self.folder}/{program}.err" >&2\n'
            f"exit {exit_code}\n"
        )
        path = self.folder / program
        path.write_text(script)
        path.chmod(0o755)

    def calls(self, program: str) -> list[str]:
        """Command lines of all calls so far."""
        noted = self.folder / "calls"
        lines = noted.read_text().splitlines() if noted.exists() else []
        return [line for line in lines if line.split()[0] == program]


def make_fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A squeue and a sacct that know no job."""
    folder.mkdir()
    fake = FakeSlurm(folder)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    fake.says("squeue", "")
    fake.says("sacct", "")
    return fake


def name_of(job_id: str) -> str:
    """What the job of an id is called, as long as a test does not say otherwise."""
    return f"words.a.t{job_id.partition('_')[0]}"


def key(job_id: str) -> JobKey:
    """The job or element that is called so."""
    return JobKey(name_of(job_id), job_id)


def question(*job_ids: str, since_unix_s: float = 0.0) -> Question:
    """A question about jobs that are called so."""
    jobs = {name_of(job_id): job_id for job_id in job_ids}
    return Question(jobs=jobs, since_unix_s=since_unix_s)


def queue_row(
    job_id: str,
    state: str,
    reason: str = "None",
    start: str = "N/A",
    *,
    name: str | None = None,
    command: str = "/home/ada/job.sh",
) -> str:
    """A line of squeue's in the format that it is asked for."""
    called = name_of(job_id) if name is None else name
    plain_id = job_id.partition("_")[0]
    return f"{job_id}|{plain_id}|{state}|{reason}|1763651000|{start}|cpu1|{called}|{command}\n"


def account_row(job_id: str, state: str, **values: str) -> str:
    """A line of sacct's in the format that it is asked for."""
    known = {"JobID": job_id, "JobName": name_of(job_id), "State": state, "ExitCode": "0:0"}
    known |= values
    return "|".join(known.get(name, "") for name in SACCT_FIELDS) + "\n"
