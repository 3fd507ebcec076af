"""Programs called squeue, sacct and scontrol that say what a test tells them to.

The real ones cannot be made to lag, to lose an end, or to be switched off while jobs run.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.schedulers.job_rows import SACCT_FIELDS
from slurm_jobs.schedulers.protocol import Question

ACCOUNTS_OFF = "Slurm accounting storage is disabled"
DATABASE_DOWN = (
    "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to "
    "host:localhost:6819: Connection refused\n"
    "sacct: error: Problem talking to the database: Connection refused"
)
QUEUE_HEADER = "JOBID|ARRAY_JOB_ID|STATE|REASON|SUBMIT_TIME|START_TIME|NODELIST|NAME|COMMAND\n"
NAMES_HEADER = "JOBID|STATE|NODELIST|NAME\n"
_JOB = """\
JobId={plain_id}{array} JobName={name}
   UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A
   JobState={state} Reason={reason} Dependency=(null)
   SubmitTime={submit} EligibleTime={submit}
   StartTime={start} EndTime=Unknown Deadline=N/A
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList={nodes}
   Command={command}

"""
_CONTROLLER = """\
if test "$*" = --all; then
  printf "controller" >> "{folder}/calls"
  code=0
  while read -r _ _ id; do
    printf " %s" "${{id:-all}}" >> "{folder}/calls"
    if test -e "{folder}/controller.silent"; then
      echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; code=1
    elif test -z "$id"; then cat "{folder}"/jobs/* 2> /dev/null || echo "No jobs in the system"
    elif test -e "{folder}/jobs/$id"; then cat "{folder}/jobs/$id"
    else echo "slurm_load_jobs error: Invalid job id specified" >&2; code=1; fi
  done
  echo >> "{folder}/calls"
  exit $code
fi
"""
"""What `scontrol` does when it reads `show job ID` from its standard input."""
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
        if program == "squeue" and not exit_code and (not text or "|" in text):
            self.controller_says(text)
        (self.folder / f"{program}.out").write_text(text)
        (self.folder / f"{program}.err").write_text(errors)
        first = _HEADERS.get(program, "") if header and not exit_code else ""
        (self.folder / f"{program}.header").write_text(first)
        names = f'echo "{NAMES_HEADER.strip()}"' if first else ":"
        start = _CONTROLLER.format(folder=self.folder) if program == "scontrol" else ""
        script = (
            f'#!/bin/bash\n{start}printf "%s\\n" "{program} $*" >> "{self.folder}/calls"\n'
            f'case " $* " in *" --noheader "*|*" -n "*) ;; *" --name "*) {names} ;; '
            f'*) cat "{self.folder}/{program}.header" ;; esac\n'
            f'cat "{self.folder}/{program}.out"\ncat "{self.folder}/{program}.err" >&2\n'
            f"exit {exit_code}\n"
        )
        path = self.folder / program
        path.write_text(script)
        path.chmod(0o755)

    def controller_says(self, rows: str) -> None:
        """What the controller knows from now on, as rows of squeue: the same if not said."""
        shutil.rmtree(self.folder / "jobs", ignore_errors=True)
        (self.folder / "jobs").mkdir()
        for line in rows.splitlines():
            fields = line.split("|", maxsplit=8)
            if len(fields) < 9 or not fields[1].isdecimal():
                continue
            job_id, plain_id, state, reason, submit, start, nodes, name, command = fields
            element = job_id.partition("_")[2].strip("[]")
            array = f" ArrayJobId={plain_id} ArrayTaskId={element}" if element else ""
            with (self.folder / "jobs" / plain_id).open("a") as stream:
                stream.write(
                    _JOB.format(
                        plain_id=plain_id,
                        array=array,
                        name=name,
                        state=state,
                        reason=reason,
                        submit=submit,
                        start=start,
                        nodes=nodes,
                        command=command,
                    )
                )

    def controller_is_silent(self) -> None:
        """From now on the controller answers nobody."""
        (self.folder / "controller.silent").touch()

    def asked_of_controller(self) -> list[str]:
        """Ids about which the controller was asked, call by call."""
        return [line.partition(" ")[2] for line in self.calls("controller")]

    def calls(self, program: str) -> list[str]:
        """Command lines of all calls so far."""
        noted = self.folder / "calls"
        lines = noted.read_text().splitlines() if noted.exists() else []
        return [line for line in lines if line.split()[0] == program]


def make_fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A squeue, a sacct and a controller that know no job."""
    folder.mkdir()
    fake = FakeSlurm(folder)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    fake.says("squeue", "")
    fake.says("sacct", "")
    fake.says("scontrol", "")
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
