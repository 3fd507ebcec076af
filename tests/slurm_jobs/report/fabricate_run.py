"""A run folder as the stages would have left it, without running them.

Four preprocessing tasks of which one fails once, a consolidation, two training
ranks that are stopped once and resume, and the report that is being made. The
records go through the same functions that the real stages use; only the work
is invented.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.timings.step_records import (
    DEVICE_FIELDS,
    LOADER_FIELDS,
    STEP_FIELDS,
    spans_path,
    steps_header,
    steps_path,
)
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import name_of_job
from slurm_jobs.run_folder.paths import RunPaths

CREATED = 1_700_000_000.0
STEP_DTYPE = np.dtype([(name, "<" + code) for name, code in STEP_FIELDS])
_TOKENS = {"mean": 36.5, "min": 9, "p5": 12, "p25": 20, "p50": 33, "p75": 50, "p95": 80}
STATISTICS = {
    "num_samples": 9984,
    "num_tokens": {**_TOKENS, "p99": 100, "max": 128},
    "num_supervised_tokens": {**_TOKENS, "p99": 30, "max": 41},
    "supervised_share": 0.31,
    "num_images": {**dict.fromkeys(_TOKENS, 1), "mean": 1.25, "p99": 2, "max": 4},
    "num_pixels": {**dict.fromkeys(_TOKENS, 147456), "p99": 147456, "max": 147456},
    "image_size": [384, 384],
    "num_tokens_bins": [[9, 63, 9000], [64, 128, 984]],
    "num_images_bins": [[1, 1, 9900], [2, 4, 84]],
}
"""What `pipeline.data.disk_format.index` says of a data set."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str = "shapes"
    num_ranks: int = 2
    num_steps: int = 400
    stopped_at: int | None = 170
    """First attempt ends after this many steps; None: there is one attempt."""
    resumed_at: int = 150
    data_wait_s: float = 0.06
    slow_rank_extra_s: float = 0.0
    """Extra data wait of the last rank; the others wait for it in the backward pass."""
    slow_rank_forward_s: float = 0.0
    """Extra forward time of the last rank; the others wait for it before the update."""
    alternating_forward_s: float = 0.0
    """Extra forward time of one rank, another one in each step; the others wait for it."""
    meeting_s: float = 0.0
    """Of every rank in every step, for the exchange between the passes."""
    core_wait_s: float = 0.0
    """Of every step, how long the loop's thread waited for a core; NaN as the kernel tells none."""
    loader_s: tuple[float, float, float] = (math.nan,) * 3
    """Of the loader's threads a step: work, and of it computing and waiting for a core."""
    loader_read_blocked_s: float = math.nan
    """Of the one thread that reads for all others; NaN without one."""
    padding_share: float = 0.02
    task_times_s: tuple[float, ...] = (380.0, 400.0, 390.0, 410.0)
    rejects: Mapping[str, int] = field(
        default_factory=lambda: {"truncated_image": 7, "too_long": 4, "not_an_image": 2}
    )
    header: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """By rank, what the header of its step records says besides rank and node."""
    train_queue_s: float = 240.0
    cpu_share: float = 0.62
    used_mem_share: float = 0.80
    finished: bool = True


def resolved_spec(scenario: Scenario) -> dict[str, Any]:
    def resources(**more: Any) -> dict[str, Any]:
        return {"nodes": 1, "tasks_per_node": 1, "cpus_per_task": 4, "timeout_min": 60, **more}

    return {
        "name": scenario.name,
        "stages": {
            "preprocess": {
                "run": "preprocess",
                "after": {},
                "array": {
                    "num_slices": len(scenario.task_times_s),
                    "max_running": 4,
                },
                "resources": resources(mem_gb=8),
                "config": {"manifest": "/data/train.jsonl", "too_long": "drop"},
            },
            "consolidate": {
                "run": "consolidate",
                "after": {"preprocess": "afterok"},
                "array": None,
                "resources": resources(mem_gb=8),
                "config": {"seed": 0},
            },
            "train": {
                "run": "train",
                "after": {"consolidate": "afterok"},
                "array": None,
                "resources": resources(nodes=2, gpus_per_node=1, mem_gb=32, timeout_min=60),
                "config": {"learning_rate": 1.5e-3, "batch_size": 32},
            },
            "report": {
                "run": "report",
                "after": {"train": "afterany"},
                "array": None,
                "resources": resources(mem_gb=2),
                "config": {"title": None, "warmup_steps": 5},
            },
        },
    }


def fabricate_steps(
    scenario: Scenario, rank: int, first: int, last: int, start: float
) -> np.ndarray:
    """Records of steps `first` to `last` of one rank; all ranks take the same time a step."""
    count, number = last - first, np.arange(first, last)
    steps = np.zeros(count, STEP_DTYPE)
    shared, own = np.random.default_rng(first), np.random.default_rng([rank, first])
    slow = scenario.slow_rank_extra_s if rank == scenario.num_ranks - 1 else 0.0
    steps["step"] = number
    steps["data_wait_s"] = scenario.data_wait_s * own.gamma(4, 0.25, count) + slow
    steps["host_to_device_s"] = 0.004
    steps["forward_s"] = 0.11
    steps["optimizer_s"] = 0.018
    steps["checkpoint_s"] = np.where(number % 50 == 49, 0.9, 0)
    steps["evaluation_s"] = np.where(number % 200 == 199, 2.5, 0)
    steps["other_s"] = 0.003
    extra = np.zeros((scenario.num_ranks, count))
    extra[-1] += scenario.slow_rank_forward_s
    extra[number % scenario.num_ranks, np.arange(count)] += scenario.alternating_forward_s
    steps["forward_s"] += extra[rank]
    steps["rank_wait_s"] = extra.max(axis=0) - extra[rank] + scenario.meeting_s
    steps["rank_wait_data_s"] = scenario.meeting_s / 2
    steps["core_wait_s"] = scenario.core_wait_s
    spread = shared.gamma(2, 0.01, count) + np.where(number < first + 4, 0.8, 0)
    longest = 3.0 * scenario.data_wait_s + scenario.slow_rank_extra_s
    step_s = (
        0.46
        + scenario.meeting_s
        + extra.max(axis=0)
        + longest
        + spread
        + steps["checkpoint_s"]
        + steps["evaluation_s"]
    )
    named = sum(
        steps[name]
        for name in (
            "data_wait_s",
            "host_to_device_s",
            "forward_s",
            "optimizer_s",
            "checkpoint_s",
            "evaluation_s",
            "rank_wait_s",
            "other_s",
        )
    )
    steps["backward_s"] = step_s - named
    steps["step_s"] = step_s
    steps["start_unix_s"] = start + np.concatenate([[0.0], np.cumsum(step_s)[:-1]])
    steps["epoch"] = number // 312
    steps["num_microbatches"] = 1
    steps["num_samples"] = steps["num_images"] = 32
    steps["num_tokens"] = own.integers(1100, 1240, count)
    slots = steps["num_tokens"] / (1 - scenario.padding_share)
    steps["num_padding_tokens"] = slots - steps["num_tokens"]
    steps["num_supervised_tokens"] = steps["num_tokens"] // 6
    for name in (*DEVICE_FIELDS, "model_flops", "mfu"):
        steps[name] = math.nan
    loading = (*scenario.loader_s, scenario.loader_read_blocked_s)
    for name, seconds in zip(LOADER_FIELDS, loading, strict=True):
        steps[name] = seconds
    steps["loss"] = 0.21 + 3.9 * np.exp(-number / 70) + shared.normal(0, 0.03, count)
    steps["grad_norm"] = math.nan
    steps["learning_rate"] = 1.5e-3
    steps["memory_peak_bytes"] = 6.2e9
    return steps


def write_plan(paths: RunPaths, number: int, stages: Mapping[str, Any]) -> None:
    """Write what a plan has of the stages of a resolved spec."""
    values = [
        {
            "name": name,
            "run": stage["run"] or "shell",
            "retries": 0,
            "fingerprint": "f1ng3r",
            "resources": stage.get("resources") or {},
            "after": stage["after"],
            "is_array": stage["array"] is not None,
            "num_slices": stage["array"]["num_slices"] if stage["array"] else 1,
        }
        for name, stage in stages.items()
    ]
    paths.plans_dir.mkdir(parents=True, exist_ok=True)
    write_json_atomic(paths.plan(number), {"stages": values})


class Fabricator:
    def __init__(self, run_dir: Path, scenario: Scenario) -> None:
        self.paths = RunPaths(run_dir)
        self.scenario = scenario
        self.accounting: list[TaskAccounting] = []
        self.stages: dict[str, str] = {}
        """Stage by job id."""

    def make(self) -> tuple[RunPaths, list[TaskAccounting]]:
        self._write_run()
        preprocessed = self._preprocess()
        consolidated = self._consolidate(preprocessed + 20)
        trained = self._train(consolidated + 5)
        if self.scenario.finished:
            self._attempt("report", 0, 1, "15", trained + 8, ("cpu-01",))
        return self.paths, self.accounting

    def _write_run(self) -> None:
        run = {
            "run_id": "20231114-221320-shapes-4f1c",
            "name": self.scenario.name,
            "created_unix_s": CREATED,
            "submitted_by": "ada",
            "host": "login-1",
            "scheduler": "slurm",
            "version": "0.1.0",
            "spec_file": "/home/ada/shapes.yaml",
        }
        self._json(self.paths.run_json, run)
        spec = resolved_spec(self.scenario)
        self._json(self.paths.resolved_spec, spec)
        write_plan(self.paths, 1, spec["stages"])
        for job_id, (stage, values) in enumerate(spec["stages"].items(), 12):
            self._submit(stage, values["array"], str(job_id))

    def _job_name(self, job_id: str) -> str:
        """Of a job that was submitted, or that has made an attempt."""
        number = job_id.partition("_")[0]
        return name_of_job(self.scenario.name, self.stages[number], f"t{number}")

    def _submit(self, stage: str, array: Mapping[str, Any] | None, job_id: str) -> None:
        self.stages[job_id] = stage
        intent = {
            "stage": stage,
            "slices": ranges_text(range(array["num_slices"])) if array else "0",
            "is_array": array is not None,
            "fingerprint": "f1ng3r",
            "job_name": self._job_name(job_id),
            "base_attempts": {},
        }
        append_entry(self.paths.ledger_dir, "intent", f"t{job_id}", intent)
        append_entry(self.paths.ledger_dir, "submitted", f"t{job_id}", {"job_id": job_id})

    def _preprocess(self) -> float:
        ends = []
        submit = CREATED + 3
        for index, task_s in enumerate(self.scenario.task_times_s):
            job_id, attempt, eligible = f"12_{index}", 1, CREATED + 4
            start, node = eligible + 31 + 2.0 * index, f"cpu-{index % 2 + 1:02d}"
            if index == 1:
                place = ("preprocess", index, 1, job_id, start)
                self._attempt(*place, (node,))
                reason = "rank 0 was killed by signal 9 (out of memory?)"
                self._end(*place, start + 95, "failed", reason=reason, signal=9)
                self._row(job_id, "OUT_OF_MEMORY", submit, eligible, start, start + 95)
                eligible, start, attempt, node = start + 96, start + 110, 2, "cpu-03"
            place = ("preprocess", index, attempt, job_id, start)
            self._attempt(*place, (node,))
            self._row(job_id, "COMPLETED", submit, eligible, start, start + task_s)
            self._end(*place, start + task_s, "completed", result=self._slice_result(index))
            ends.append(start + task_s)
        return max(ends)

    def _slice_result(self, index: int) -> dict[str, Any]:
        rejects = dict(self.scenario.rejects) if index == 0 else {"truncated_image": 1}
        return {
            "num_rows": 2500,
            "num_samples": 2500 - sum(rejects.values()),
            "num_rejected": sum(rejects.values()),
            "rejects_by_reason": rejects,
            "num_too_long": rejects.get("too_long", 0),
            "num_truncated": 0,
            "num_tokens": 91_000 + index,
            "num_tokens_histogram": {"16": 80, "32": 900, "64": 1400, "128": 107},
            "decode_s": 210.5,
            "store_s": 70.0,
            "stored_image": {
                "num_measured": 16,
                "bytes": 89_000 + index,
                "decode_ms": 0.8,
                "psnr_db": 41.0 - index,
            },
            "tokenise_s": 31.0,
            "write_s": 8.2,
        }

    def _consolidate(self, start: float) -> float:
        self._attempt("consolidate", 0, 1, "13", start, ("cpu-01",))
        result = {"num_samples": 9984, "num_shards": 8, "statistics": STATISTICS}
        self._end("consolidate", 0, 1, "13", start, start + 44, "completed", result=result)
        self._row("13", "COMPLETED", CREATED + 3.5, start - 12, start, start + 44)
        return start + 44

    def _train(self, eligible: float) -> float:
        scenario = self.scenario
        start = eligible + scenario.train_queue_s
        nodes = tuple(f"gpu-{rank // 8 + 1:02d}" for rank in range(0, scenario.num_ranks, 8))
        first = 0
        if scenario.stopped_at is not None:
            self._attempt("train", 0, 1, "14", start, nodes)
            end = self._steps(1, start, 0, scenario.stopped_at) + 4
            self._end("train", 0, 1, "14", start, end, "stopped", reason="asked to stop (SIGUSR2)")
            self._row("14", "PREEMPTED", CREATED + 3.8, eligible, start, end, num_gpus=2)
            eligible, start, first = end + 2, end + 70, scenario.resumed_at
        attempt = 2 if scenario.stopped_at is not None else 1
        self._attempt("train", 0, attempt, "14", start, nodes)
        end = self._steps(attempt, start, first, scenario.num_steps) + 12
        if scenario.finished:
            result = {
                "num_steps": scenario.num_steps,
                "evaluation": {"exact_match": 0.93, "num_samples": 480},
            }
            self._end("train", 0, attempt, "14", start, end, "completed", result=result)
            self._row("14", "COMPLETED", CREATED + 3.8, eligible, start, end, num_gpus=2)
        return end

    def _steps(self, attempt: int, start: float, first: int, last: int) -> float:
        """Write the timing of all ranks; return when the loop ended."""
        folder = self.paths.timing_dir("train", 0, attempt)
        folder.mkdir(parents=True)
        loop_start, spans = start + 1.0, []
        for name, duration_s in (
            ("startup_import", 9.0),
            ("stage_in", 14.0),
            ("model_build", 6.0),
            *((("checkpoint_load", 3.0),) if attempt > 1 else ()),
        ):
            spans.append({"name": name, "start_unix_s": loop_start, "duration_s": duration_s})
            loop_start += duration_s + 0.2
        ranks = [
            fabricate_steps(self.scenario, r, first, last, loop_start)
            for r in range(self.scenario.num_ranks)
        ]
        end = loop_start + float(ranks[0]["step_s"].sum(dtype=np.float64))
        spans.append({"name": "evaluation", "start_unix_s": end + 0.5, "duration_s": 5.0})
        spans.append({"name": "export", "start_unix_s": end + 6.0, "duration_s": 2.5})
        for rank, steps in enumerate(ranks):
            said = {"rank": rank, "node_name": f"gpu-{rank // 8 + 1:02d}"}
            header = steps_header({**said, **self.scenario.header.get(rank, {})})
            steps_path(folder, rank).write_bytes(header + steps.tobytes())
            lines = "".join(json.dumps(span) + "\n" for span in spans)
            spans_path(folder, rank).write_text(lines)
        return end

    def _json(self, path: Path, value: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(path, value)

    def _attempt(  # noqa: PLR0917 - a test's shorthand
        self,
        stage: str,
        index: int,
        attempt: int,
        job_id: str,
        start: float,
        nodes: tuple[str, ...],
    ) -> None:
        self.stages[job_id.partition("_")[0]] = stage
        record = AttemptRecord(
            stage=stage,
            slice_index=index,
            attempt=attempt,
            job_id=job_id,
            token=f"t{job_id.partition('_')[0]}",
            fingerprint="f1ng3r",
            started_unix_s=start,
            node_names=nodes,
            host=nodes[0],
            pid=4711,
            num_ranks=self.scenario.num_ranks if stage == "train" else 1,
            scheduler="slurm",
            restart=attempt - 1,
        )
        self._json(self.paths.attempt(stage, index, attempt), record_to_json(record))

    def _end(  # noqa: PLR0917 - a test's shorthand
        self,
        stage: str,
        index: int,
        attempt: int,
        job_id: str,
        start: float,
        end: float,
        outcome: Any,
        *,
        reason: str = "",
        signal: int | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        record = CompletionRecord(
            stage=stage,
            slice_index=index,
            attempt=attempt,
            job_id=job_id,
            token=f"t{job_id.partition('_')[0]}",
            outcome=outcome,
            fingerprint="f1ng3r",
            started_unix_s=start,
            ended_unix_s=end,
            exit_code=0 if outcome == "completed" else 1,
            signal=signal,
            reason=reason,
            result=result or {},
        )
        name = CompletionName(index, attempt, record.token, outcome)
        self._json(self.paths.completion(stage, name), record_to_json(record))

    def _row(  # noqa: PLR0917 - a test's shorthand
        self,
        job_id: str,
        state: str,
        submit: float,
        eligible: float,
        start: float,
        end: float,
        *,
        num_gpus: int = 0,
    ) -> None:
        asked = 32e9 if num_gpus else 8e9
        self.accounting.append(
            TaskAccounting(
                job_id=job_id,
                job_name=self._job_name(job_id),
                state=state,
                source="sacct",
                submit_unix_s=submit,
                eligible_unix_s=eligible,
                start_unix_s=start,
                end_unix_s=end,
                num_cpus=4,
                num_gpus=num_gpus,
                requested_mem_bytes=asked,
                max_rss_bytes=asked * self.scenario.used_mem_share,
                cpu_time_s=4 * (end - start) * self.scenario.cpu_share,
                time_limit_s=3600,
            )
        )


def fabricate(run_dir: Path, scenario: Scenario) -> tuple[RunPaths, list[TaskAccounting]]:
    """Write the run folder; return its paths and what the scheduler would account."""
    return Fabricator(run_dir, scenario).make()
