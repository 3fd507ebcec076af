"""Paths of a run.

```
RUN/
  run.json                                   who submitted what, when, with which scheduler
  spec/given.yaml, resolved.json, origin.json   the spec as written, complete, its origin
  plans/0001.json                            one for the submit, one more for each resume
  provenance/0001.json, 0001.diff            its provenance: git, packages, host
  code/FINGERPRINT/                          snapshot that the jobs run: start.py, lib.zip, user/
  ledger/000001.json                         numbered entries, each created once
  jobs/TOKEN/batch.sh, job.json              the script and order of a job
  attempts/STAGE/s00003.a0001.json           a task has started
  completions/STAGE/s00003.a0001.TOKEN.failed.json ... and how it ended
  tasks/STAGE/s00003.a0001/                  context, progress, exit record of each rank, and
                                             node-00000.json: facts about the first node
  pythons/FINGERPRINT.json                   a Python that ranks ran in, with its packages
  logs/STAGE/slurm-12_3.log                  the supervisor of a job; s00003.a0001.rank-00001.log
  timing/STAGE/s00000.a0001/                 rank-00001.steps, rank-00001.spans.jsonl, and
                                             node-00000.system: the load of the first node
  data/STAGE/                                output of the stage
  local/                                     queue of the local scheduler
  scheduler-answer.json                      last answer of squeue and sacct, for some seconds
  report/report.html, report.json
  cleaned.json                               what `clean` removed, if anything
  note.txt                                   what the user noted on the run
```
"""

from __future__ import annotations

import re
import secrets
import stat
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from slurm_jobs.formats.records.attempt_records import (
    CompletionName,
    attempt_label,
    completion_name,
)

RUN_STAMP = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")
"""Pattern of the suffix that follows the spec's name in a run's id, as `run_name` makes it."""


def run_name(spec_name: str, created_unix_s: float) -> str:
    """Return a new name for a run of this spec, which is the run's id and names its folder."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(created_unix_s))
    return f"{spec_name}-{stamp}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Paths of the run in `run_dir`; creates nothing and reads nothing."""

    run_dir: Path

    @property
    def run_json(self) -> Path:
        """Return the file with id, name, time, user and scheduler of the run."""
        return self.run_dir / "run.json"

    @property
    def given_spec(self) -> Path:
        """Return the copy of the spec as the user wrote it."""
        return self.run_dir / "spec" / "given.yaml"

    @property
    def resolved_spec(self) -> Path:
        """Return the complete spec: defaults filled in, paths absolute."""
        return self.run_dir / "spec" / "resolved.json"

    @property
    def spec_origin(self) -> Path:
        """Return the origin of the spec: its file and folder, overrides, cluster profile."""
        return self.run_dir / "spec" / "origin.json"

    @property
    def plans_dir(self) -> Path:
        """Return the folder of plans: one for the submit, one more for each resume."""
        return self.run_dir / "plans"

    def plan(self, number: int) -> Path:
        """Return the plan of submission `number`, counted from 1."""
        return self.plans_dir / f"{number:04d}.json"

    @property
    def provenance_dir(self) -> Path:
        """Return the folder of provenance records, one for each submission."""
        return self.run_dir / "provenance"

    def provenance(self, number: int) -> Path:
        """Return code, command line, packages and host of the submission of plan `number`."""
        return self.provenance_dir / f"{number:04d}.json"

    def uncommitted_diff(self, number: int) -> Path:
        """Return the uncommitted diff at that submission; absent if there was none."""
        return self.provenance_dir / f"{number:04d}.diff"

    @property
    def code_dir(self) -> Path:
        """Return the folder of code snapshots, by fingerprint."""
        return self.run_dir / "code"

    def code_snapshot(self, fingerprint: str) -> Path:
        """Return a snapshot: `start.py`, `lib.zip` (ours), `user/` (the spec's own modules)."""
        return self.code_dir / fingerprint

    def used_code(self, stage: str, used: str) -> Path:
        """Return the list of the user's files that attempts of a stage used, by its id."""
        return self.run_dir / "used_code" / stage / f"{used}.json"

    @property
    def ledger_dir(self) -> Path:
        """Return the folder of ledger entries: numbered, each created once."""
        return self.run_dir / "ledger"

    @property
    def jobs_dir(self) -> Path:
        """Return the folder of job folders, one for each intent."""
        return self.run_dir / "jobs"

    def job_dir(self, token: str) -> Path:
        """Return the folder of one intent's job."""
        return self.jobs_dir / token

    def batch_script(self, token: str) -> Path:
        """Return the exact batch script that sbatch received."""
        return self.job_dir(token) / "batch.sh"

    def job_json(self, token: str) -> Path:
        """Return the order that the supervisor of that job reads."""
        return self.job_dir(token) / "job.json"

    def attempts_dir(self, stage: str) -> Path:
        """Return the attempt records of a stage."""
        return self.run_dir / "attempts" / stage

    def attempt(self, stage: str, slice_index: int, attempt: int) -> Path:
        """Return the record that an attempt started."""
        return self.attempts_dir(stage) / f"{attempt_label(slice_index, attempt)}.json"

    def completions_dir(self, stage: str) -> Path:
        """Return the completion records of a stage."""
        return self.run_dir / "completions" / stage

    def completion(self, stage: str, name: CompletionName) -> Path:
        """Return the record of an attempt's outcome."""
        return self.completions_dir(stage) / completion_name(name)

    def task_dir(self, stage: str, slice_index: int, attempt: int) -> Path:
        """Return the small files of an attempt: context, progress, exit record of each rank."""
        return self.run_dir / "tasks" / stage / attempt_label(slice_index, attempt)

    def node_facts(self, stage: str, slice_index: int, attempt: int, node_rank: int) -> Path:
        """Return the facts about a node of an attempt: CPU, memory, GPUs, modules, Python."""
        return self.task_dir(stage, slice_index, attempt) / f"node-{node_rank:05d}.json"

    def logs_dir(self, stage: str) -> Path:
        """Return the logs of a stage; the folder exists before sbatch is called."""
        return self.run_dir / "logs" / stage

    def job_log(self, stage: str, element_id: str) -> Path:
        """Return the log of a job's set-up lines and supervisor, by its id (`12`, `12_3`)."""
        return self.logs_dir(stage) / f"slurm-{element_id}.log"

    def rank_log(self, stage: str, slice_index: int, attempt: int, rank: int) -> Path:
        """Return the log of one rank of an attempt."""
        return self.logs_dir(stage) / f"{attempt_label(slice_index, attempt)}.rank-{rank:05d}.log"

    def timing_stage_dir(self, stage: str) -> Path:
        """Return the step records of all attempts of a stage."""
        return self.run_dir / "timing" / stage

    def timing_dir(self, stage: str, slice_index: int, attempt: int) -> Path:
        """Return step records and spans of an attempt, one file for each rank."""
        return self.timing_stage_dir(stage) / attempt_label(slice_index, attempt)

    def output_dir(self, stage: str) -> Path:
        """Return the output folder of a stage."""
        return self.run_dir / "data" / stage

    @property
    def pythons_dir(self) -> Path:
        """Return the records of the Pythons that ranks ran in; equal ones share a file."""
        return self.run_dir / "pythons"

    def python(self, fingerprint: str) -> Path:
        """Return the record of a Python and the versions of its packages."""
        return self.pythons_dir / f"{fingerprint}.json"

    @property
    def local_dir(self) -> Path:
        """Return the queue folder of the local scheduler."""
        return self.run_dir / "local"

    @property
    def scheduler_answer(self) -> Path:
        """Return the cached answer of the scheduler; for display only."""
        return self.run_dir / "scheduler-answer.json"

    @property
    def cleaned(self) -> Path:
        """Return the record of what `clean` removed; absent if nothing was."""
        return self.run_dir / "cleaned.json"

    @property
    def report_dir(self) -> Path:
        """Return the folder of the report's page and its numbers."""
        return self.run_dir / "report"

    @property
    def report_html(self) -> Path:
        """Return the report as one HTML file that opens offline."""
        return self.report_dir / "report.html"

    @property
    def report_json(self) -> Path:
        """Return the complete report as JSON."""
        return self.report_dir / "report.json"

    @property
    def note(self) -> Path:
        """Return what the user noted on the run; absent if nothing was."""
        return self.run_dir / "note.txt"


def token_of_script(command: str) -> str:
    """Return the token in the path of a batch script; empty if it is not of a run of ours."""
    folder = PurePosixPath(command).parent
    return folder.name if folder.parent.name == "jobs" else ""


def is_run(folder: Path) -> bool:
    """Check whether a folder is a run, as far as this user can read it."""
    try:
        return stat.S_ISREG(RunPaths(folder).run_json.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:  # somebody else's, in a folder that many share
        return False


def age_key(run_dir: Path) -> tuple[float, str, str]:
    """Return the sort key that orders runs by age, the newest last.

    It is the time of `run.json`, which is written once and, on a network file system, dated by a
    single clock. The time in a run's name comes from the submitting machine, whose clock may
    differ. It orders runs of the same file time, which copies may have.

    Raises:
        OSError: the folder has no `run.json`, or cannot be searched.
    """
    stamp = RUN_STAMP.search(run_dir.name)
    written_s = RunPaths(run_dir).run_json.stat().st_mtime
    return written_s, stamp.group() if stamp else "", run_dir.name
