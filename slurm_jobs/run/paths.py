"""Every path of a run comes from here.

```
RUN/
  run.json                                   who submitted what, when, with which scheduler
  spec/given.yaml, resolved.json, origin.json   the spec as written, as understood, whence
  plans/0001.json                            one for the submit, one more for each resume
  provenance/0001.json, 0001.diff            what that one was made from: git, packages, host
  code/FINGERPRINT/                          snapshot that the jobs run: start.py, lib/, user/
  ledger/000001.json                         numbered entries, each created once
  jobs/TOKEN/batch.sh, job.json              what sbatch was given
  attempts/STAGE/s00003.a0001.json           a task has started
  completions/STAGE/s00003.a0001.TOKEN.failed.json ... and how it ended
  tasks/STAGE/s00003.a0001/                  context, progress, exit record of each rank, and
                                             node-00000.json: what is true of the first node
  pythons/FINGERPRINT.json                   a Python that ranks ran in, with its packages
  logs/STAGE/slurm-12_3.log                  the supervisor of a job; s00003.a0001.rank-00001.log
  timing/STAGE/s00000.a0001/                 rank-00001.steps, rank-00001.spans.jsonl, and
                                             node-00000.system: the load of the first node
  data/STAGE/                                what the stage made
  local/                                     the local scheduler's own book
  scheduler-answer.json                      what squeue and sacct last said, for some seconds
  report/report.html, report.json
```
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.common.records import CompletionName, attempt_label, completion_name

RUN_STAMP = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")
"""End of a run's id, after the spec's name."""


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The paths of the run in `run_dir`; nothing is created or looked up here."""

    run_dir: Path

    @property
    def run_json(self) -> Path:
        """Id, name, time, user and scheduler of the run."""
        return self.run_dir / "run.json"

    @property
    def given_spec(self) -> Path:
        """The spec as the user wrote it."""
        return self.run_dir / "spec" / "given.yaml"

    @property
    def resolved_spec(self) -> Path:
        """The spec as it was understood: defaults filled in, paths absolute."""
        return self.run_dir / "spec" / "resolved.json"

    @property
    def spec_origin(self) -> Path:
        """Where the spec came from: its file and folder, the overrides, the cluster profile."""
        return self.run_dir / "spec" / "origin.json"

    @property
    def plans_dir(self) -> Path:
        """One plan for the submit, one more for each resume."""
        return self.run_dir / "plans"

    def plan(self, number: int) -> Path:
        """The plan of submission `number`, counted from 1."""
        return self.plans_dir / f"{number:04d}.json"

    @property
    def provenance_dir(self) -> Path:
        """What each submission was made from."""
        return self.run_dir / "provenance"

    def provenance(self, number: int) -> Path:
        """Code, command line, packages and host of the submission of plan `number`."""
        return self.provenance_dir / f"{number:04d}.json"

    def uncommitted_diff(self, number: int) -> Path:
        """What git had not committed at that submission; not there if that was nothing."""
        return self.provenance_dir / f"{number:04d}.diff"

    @property
    def code_dir(self) -> Path:
        """Snapshots of the code, by fingerprint."""
        return self.run_dir / "code"

    def code_snapshot(self, fingerprint: str) -> Path:
        """One snapshot: `start.py`, `lib/` (ours), `user/` (the spec's own modules)."""
        return self.code_dir / fingerprint

    @property
    def ledger_dir(self) -> Path:
        """Numbered entries, each created once."""
        return self.run_dir / "ledger"

    @property
    def jobs_dir(self) -> Path:
        """One folder for each intent."""
        return self.run_dir / "jobs"

    def job_dir(self, token: str) -> Path:
        """What the job of one intent was given."""
        return self.jobs_dir / token

    def batch_script(self, token: str) -> Path:
        """The exact text that sbatch was given."""
        return self.job_dir(token) / "batch.sh"

    def job_json(self, token: str) -> Path:
        """What the supervisor of that job needs to know."""
        return self.job_dir(token) / "job.json"

    def attempts_dir(self, stage: str) -> Path:
        """Attempt records of a stage."""
        return self.run_dir / "attempts" / stage

    def attempt(self, stage: str, slice_index: int, attempt: int) -> Path:
        """The record that an attempt started."""
        return self.attempts_dir(stage) / f"{attempt_label(slice_index, attempt)}.json"

    def completions_dir(self, stage: str) -> Path:
        """Completion records of a stage."""
        return self.run_dir / "completions" / stage

    def completion(self, stage: str, name: CompletionName) -> Path:
        """The record of how an attempt ended."""
        return self.completions_dir(stage) / completion_name(name)

    def task_dir(self, stage: str, slice_index: int, attempt: int) -> Path:
        """Small files of an attempt: context, progress, exit record of each rank."""
        return self.run_dir / "tasks" / stage / attempt_label(slice_index, attempt)

    def node_facts(self, stage: str, slice_index: int, attempt: int, node_rank: int) -> Path:
        """What is true of one node of an attempt: CPU, memory, GPUs, modules, Python."""
        return self.task_dir(stage, slice_index, attempt) / f"node-{node_rank:05d}.json"

    def logs_dir(self, stage: str) -> Path:
        """Logs of a stage; exists before sbatch is called."""
        return self.run_dir / "logs" / stage

    def job_log(self, stage: str, element_id: str) -> Path:
        """Log of a job's set-up lines and supervisor, by its id (`12`, `12_3`)."""
        return self.logs_dir(stage) / f"slurm-{element_id}.log"

    def rank_log(self, stage: str, slice_index: int, attempt: int, rank: int) -> Path:
        """Log of one rank of an attempt."""
        return self.logs_dir(stage) / f"{attempt_label(slice_index, attempt)}.rank-{rank:05d}.log"

    def timing_stage_dir(self, stage: str) -> Path:
        """Step records of all attempts of a stage."""
        return self.run_dir / "timing" / stage

    def timing_dir(self, stage: str, slice_index: int, attempt: int) -> Path:
        """Step records and spans of an attempt, a file a rank."""
        return self.timing_stage_dir(stage) / attempt_label(slice_index, attempt)

    def output_dir(self, stage: str) -> Path:
        """What the stage made."""
        return self.run_dir / "data" / stage

    @property
    def pythons_dir(self) -> Path:
        """The Pythons that ranks ran in; equal ones share a file."""
        return self.run_dir / "pythons"

    def python(self, fingerprint: str) -> Path:
        """A Python and the versions of its packages."""
        return self.pythons_dir / f"{fingerprint}.json"

    @property
    def local_dir(self) -> Path:
        """The local scheduler's own book."""
        return self.run_dir / "local"

    @property
    def scheduler_answer(self) -> Path:
        """What the scheduler last said; shared by all terminals, and never acted upon."""
        return self.run_dir / "scheduler-answer.json"

    @property
    def report_dir(self) -> Path:
        """The report's page and its numbers."""
        return self.run_dir / "report"

    @property
    def report_html(self) -> Path:
        """One HTML file that opens offline."""
        return self.report_dir / "report.html"

    @property
    def report_json(self) -> Path:
        """Everything that the report says, as JSON."""
        return self.report_dir / "report.json"


def is_run(folder: Path) -> bool:
    """Whether a folder is a run, as far as this user may look."""
    try:
        return stat.S_ISREG(RunPaths(folder).run_json.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:  # somebody else's, in a folder that many share
        return False


def age_key(run_dir: Path) -> tuple[float, str, str]:
    """Return what orders runs by age, the newest last.

    The time of `run.json`, which is written once and, on a network file system, dated by one
    clock. The time in a run's name comes from the machine that submitted it, and two machines'
    clocks differ; it orders runs of the same file time, as a copy may have.

    Raises:
        OSError: the folder has no `run.json`, or hides it.
    """
    stamp = RUN_STAMP.search(run_dir.name)
    written_s = RunPaths(run_dir).run_json.stat().st_mtime
    return written_s, stamp.group() if stamp else "", run_dir.name
