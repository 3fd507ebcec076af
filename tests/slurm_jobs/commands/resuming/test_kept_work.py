"""Random histories of edits and resumes: the slices that run again are those that a model names.

The model keeps the contents of the files that each slice used. A stand-in for the scheduler ends
each job as it is submitted, and records what its slices used; that workers record this truly is
shown in `worker/test_used_code.py`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.base.index_ranges import parse_ranges
from slurm_jobs.commands import resume as resume_module
from slurm_jobs.commands import submit as submit_module
from slurm_jobs.commands.resume import ResumeRequest, Resumption, resume
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
)
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run import observe
from slurm_jobs.run.library import Library
from slurm_jobs.run_folder.ledger import intents, read_ledger
from slurm_jobs.run_folder.orders import JobOrder
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_plan_values
from slurm_jobs.run_folder.used_code import record_used_files
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question

NUM_SLICES = 6
NUM_HISTORIES = 16 * int(os.environ.get("SLURM_JOBS_FUZZ", "1"))
NAMED = ("shared.py", "even.py", "unrelated.py", "prompt.txt", "tool.sh")
"""Files under `code:`, on all of which a shell command depends."""
FILES = ("work.py", *NAMED)


def used_by(index: int) -> tuple[str, ...]:
    """Names of the files of which a slice's result is made."""
    own = ("even.py",) if index % 2 == 0 else ()
    return ("work.py", "shared.py", "prompt.txt", "tool.sh", *own)


@dataclass
class Model:
    """What each slice of `work` was made of, and the one of `fetch`."""

    folder: Path
    made_of: dict[int, dict[str, str]] = field(default_factory=dict)
    fetched_with: dict[str, str] | None = None
    settings: dict[str, int] = field(default_factory=lambda: {"config": 0, "command": 0})
    failing: frozenset[int] = frozenset()
    breaks_down: bool = False

    def texts(self, names: Sequence[str]) -> dict[str, str]:
        return {name: (self.folder / name).read_text() for name in names}

    def work_now(self, index: int) -> dict[str, str]:
        return {**self.texts(used_by(index)), "config": str(self.settings["config"])}

    def fetch_now(self) -> dict[str, str]:
        return {**self.texts(NAMED), "command": str(self.settings["command"])}

    def write_spec(self) -> None:
        (self.folder / "spec.yaml").write_text(
            "name: history\ncluster: local\n"
            f"code: [{', '.join(NAMED)}]\n"
            "stages:\n"
            f"  fetch: {{shell: 'echo {self.settings['command']}'}}\n"
            f"  work: {{run: 'work:run', array: {{num_slices: {NUM_SLICES}}}, "
            f"config: {{a: {self.settings['config']}}}}}\n"
            "  total: {shell: 'true', after: work}\n"
        )


@dataclass
class AtOnce:
    """Ends each job while it is submitted; its slices use the files of the model."""

    model: Model
    paths: RunPaths
    name: str = "local"
    ran: list[tuple[str, int]] = field(default_factory=list)

    def render(self, order: JobOrder, dependencies: JobDependencies) -> str:
        return ""

    def submit(self, order: JobOrder, dependencies: JobDependencies) -> str:
        if self.model.breaks_down:
            raise SchedulerError("the site is down")
        job_id = str(len(list(self.paths.jobs_dir.iterdir())))
        for index in order.slices:
            self._run(order, index, job_id)
        return job_id

    def _run(self, order: JobOrder, index: int, job_id: str) -> None:
        self.ran.append((order.stage, index))
        for folder in (self.paths.attempts_dir, self.paths.completions_dir):
            folder(order.stage).mkdir(parents=True, exist_ok=True)
        (own,) = (i for i in intents(read_ledger(self.paths.ledger_dir)) if i.token == order.token)
        attempt = own.base_attempts.get(index, 0) + 1
        has_failed = order.stage == "work" and index in self.model.failing
        used = None
        if order.stage == "work":
            opened = [name for name in used_by(index) if name.endswith(".py")]
            used = record_used_files(self.paths, "work", opened)
        known = {
            "stage": order.stage,
            "slice_index": index,
            "attempt": attempt,
            "job_id": job_id,
            "token": order.token,
            "fingerprint": order.fingerprint,
            "started_unix_s": time.time(),
        }
        start = AttemptRecord(
            **known, node_names=("n",), host="n", pid=1, num_ranks=1, scheduler="local", restart=0
        )
        write_json_atomic(self.paths.attempt(order.stage, index, attempt), record_to_json(start))
        outcome = "failed" if has_failed else "completed"
        end = CompletionRecord(
            **known,
            outcome=outcome,
            ended_unix_s=time.time(),
            exit_code=int(has_failed),
            used_code=used,
        )
        name = CompletionName(index, attempt, order.token, outcome)
        write_json_atomic(self.paths.completion(order.stage, name), record_to_json(end))
        if order.stage == "fetch":
            self.model.fetched_with = self.model.fetch_now()
        elif order.stage == "work":
            self.model.made_of.pop(index, None)
            if not has_failed:
                self.model.made_of[index] = self.model.work_now(index)

    def start(self) -> None:
        pass

    def settle(self) -> None:
        pass

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        return {}

    def query(self, question: Question) -> Answer:
        return Answer(asked_unix_s=time.time())

    def accounting(self, question: Question) -> Answer:
        raise NotImplementedError

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        assert not jobs, "no job lives"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model whose jobs the stand-in ends; copies of our own code and questions to git are left
    out, because they take most of the time."""
    model = Model(folder=tmp_path / "spec")
    model.folder.mkdir()

    def at_once(_which: object, run_dir: Path, *_rest: object, **_more: object) -> AtOnce:
        return AtOnce(model, RunPaths(run_dir))

    monkeypatch.setattr(submit_module, "scheduler_for", at_once)
    monkeypatch.setattr(observe, "scheduler_named", at_once)
    monkeypatch.setattr(Library, "write", lambda _self, archive, **_: archive.touch())
    for module in (submit_module, resume_module):
        monkeypatch.setattr(module, "record_provenance", lambda *_, **__: None)
    return model


def expected(model: Model, *, keep_complete: bool) -> dict[str, set[int]]:
    """Slices that the next resume with the current code and spec must run, by stage."""
    again: set[int] = set()
    for index in range(NUM_SLICES):
        then, now = model.made_of.get(index), model.work_now(index)
        is_current = then == now or (keep_complete and then is not None)
        if then is None or then["config"] != now["config"] or not is_current:
            again.add(index)
    fetch = model.fetched_with
    fetches = fetch is None or fetch["command"] != model.fetch_now()["command"]
    fetches = fetches or (fetch != model.fetch_now() and not keep_complete)
    return {"fetch": {0} if fetches else set(), "work": again}


def slices_of(resumption: Resumption) -> dict[str, set[int]]:
    slices: dict[str, set[int]] = {"fetch": set(), "work": set(), "total": set()}
    for job in resumption.plan.jobs:
        slices[job.stage] |= set(job.slices)
    return slices


def edit(rng: random.Random, model: Model) -> None:
    for name in rng.sample(FILES, rng.choice([0, 1, 1, 2])):
        with (model.folder / name).open("a") as stream:
            stream.write(f"# {rng.randrange(3)}\n")
    if rng.random() < 0.2:
        model.settings[rng.choice(["config", "command"])] += 1
    model.failing = frozenset(rng.sample(range(NUM_SLICES), rng.choice([0, 0, 1, 2])))
    model.write_spec()


@pytest.mark.parametrize("seed", range(NUM_HISTORIES))
def test_a_resume_runs_what_the_model_of_used_files_names(model: Model, seed: int) -> None:
    rng = random.Random(seed)
    for name in FILES:
        (model.folder / name).write_text(f"# {name}\n")
    (model.folder / "work.py").write_text("def run(config, context): ...\n")
    model.failing = frozenset(rng.sample(range(NUM_SLICES), 2))
    model.write_spec()
    paths = submit(load(model.folder / "spec.yaml")).paths
    run_dir = paths.run_dir
    for _ in range(4):
        edit(rng, model)
        keep = rng.random() < 0.5
        wanted = expected(model, keep_complete=keep)
        request = ResumeRequest(update_code=True, update_spec=True, keep_complete=keep)
        if rng.random() < 0.2:  # it dies between its plan and its first job
            model.breaks_down = True
            with suppress(SchedulerError):
                resume(run_dir, request)
            model.breaks_down = False
            if rng.random() < 0.5:
                request = ResumeRequest()
        resumption = resume(run_dir, request)
        slices = slices_of(resumption)
        assert {name: slices[name] for name in wanted} == wanted
        assert bool(slices["total"]) == bool(wanted["work"]) or not keep
        stays = {
            index
            for ranges in resumption.kept.other_code.get("work", {}).values()
            for index in parse_ranges(ranges)
        }
        assert stays == {i for i, then in model.made_of.items() if then != model.work_now(i)}
    model.failing = frozenset()
    resume(run_dir, ResumeRequest(update_code=True, update_spec=True))
    assert model.made_of == {index: model.work_now(index) for index in range(NUM_SLICES)}
    planned = {
        values["name"]: values["fingerprint"] for values in read_plan_values(paths)["stages"]
    }
    unchanged = resume(run_dir, ResumeRequest(update_code=True, update_spec=True, dry_run=True))
    assert {stage.name: stage.fingerprint for stage in unchanged.plan.stages} == planned
    assert not unchanged.plan.jobs


def test_failed_slices_run_again_as_not_complete_whatever_code_changed(model: Model) -> None:
    for name in FILES:
        (model.folder / name).write_text(f"# {name}\n")
    (model.folder / "work.py").write_text("def run(config, context): ...\n")
    model.failing = frozenset({1, 3})
    model.write_spec()
    run_dir = submit(load(model.folder / "spec.yaml")).paths.run_dir
    (model.folder / "work.py").write_text("def run(config, context): return {}\n")
    request = ResumeRequest(update_code=True, keep_complete=True, dry_run=True)
    (why,) = (job.why for job in resume(run_dir, request).plan.jobs if job.stage == "work")
    assert why == f"2 of {NUM_SLICES} slices are not complete"
