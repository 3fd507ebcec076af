"""Reader of a run's provenance and nodes that hides what looks like a secret.

Missing records of older versions are no problem; unreadable ones are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import read_json
from slurm_jobs.base.redact import hidden_values, known_secrets
from slurm_jobs.base.texts.truncation import truncated_values
from slurm_jobs.formats.records.attempt_records import AttemptRecord
from slurm_jobs.report.inputs.record_files import UNREADABLE, Record, read_each
from slurm_jobs.report.values.provenance_model import (
    PACKAGES_THAT_MATTER,
    PythonFacts,
    RecordedNode,
    SubmissionFacts,
)
from slurm_jobs.run_folder.paths import RunPaths


def read_secrets(paths: RunPaths, spec: Mapping[str, Any]) -> frozenset[str]:
    """Return values of the variables of spec and profile whose names look like secrets."""
    environments = [spec.get("environment")]
    environments += [stage.get("environment") for stage in spec["stages"].values()]
    with suppress(*UNREADABLE):  # a run without this file has no profile either
        environments.append(read_json(paths.spec_origin)["profile"].get("environment"))
    return known_secrets(environments)


def shown_spec(spec: Mapping[str, Any], secrets: frozenset[str]) -> dict[str, Any]:
    """Return the spec for a page; a stage's name does not make its content a secret."""
    stages = {
        name: {**hidden_values(stage, secrets), "after": stage.get("after")}
        for name, stage in spec["stages"].items()
    }
    return {**hidden_values({**spec, "stages": None}, secrets), "stages": stages}


def read_submissions(paths: RunPaths, problems: list[str]) -> tuple[SubmissionFacts, ...]:
    """Return the provenance of each submit and resume, oldest first."""
    files = sorted(paths.provenance_dir.glob("[0-9]*.json"))
    return tuple(facts for _, facts in _read_provenance(files, _submission, problems))


def read_nodes(
    paths: RunPaths, attempts: Iterable[AttemptRecord], problems: list[str]
) -> tuple[RecordedNode, ...]:
    """Return the recorded nodes of a stage's attempts; most array tasks share a few nodes."""
    files = (
        paths.node_facts(a.stage, a.slice_index, a.attempt, node_rank)
        for a in attempts
        for node_rank in range(len(a.node_names))
    )
    return tuple(dict.fromkeys(facts for _, facts in _read_provenance(files, _node, problems)))


def read_pythons(paths: RunPaths, problems: list[str]) -> Mapping[str, PythonFacts]:
    """Return the Pythons in which ranks ran, by fingerprint."""
    files = sorted(paths.pythons_dir.glob("*.json"))
    return {path.stem: facts for path, facts in _read_provenance(files, _python, problems)}


def _read_provenance(
    files: Iterable[Path], make: Callable[[Mapping[str, Any]], Record], problems: list[str]
) -> Iterator[tuple[Path, Record]]:
    return read_each(
        files, lambda v: make(truncated_values(v)), problems, "provenance", is_optional=True
    )


def _submission(values: Mapping[str, Any]) -> SubmissionFacts:
    git, slurm = values["git"], values["slurm"] or {"version": ""}
    return SubmissionFacts(
        number=values["number"],
        recorded_unix_s=values["recorded_unix_s"],
        command=tuple(hidden_values(values["command"])),
        host=values["host"]["name"],
        slurm_jobs_version=values["slurm_jobs_version"],
        slurm_version=slurm["version"],
        commit=git["commit"],
        branch=git["branch"],
        remotes=git["remotes"],
        is_dirty=git["is_dirty"],
        num_changed=git["num_changed"],
        num_untracked=git["num_untracked"],
        diff_bytes=git["diff_bytes"],
        diff_is_cut=git["diff_is_cut"],
        git_problems=tuple(git["problems"]),
        python=_python(values["python"]),
    )


def _python(values: Mapping[str, Any]) -> PythonFacts:
    packages = values["packages"]
    return PythonFacts(
        executable=values["executable"],
        version=values["version"],
        packages={name: packages[name] for name in PACKAGES_THAT_MATTER if name in packages},
    )


def _node(values: Mapping[str, Any]) -> RecordedNode:
    host, gpus = values["host"], values["gpus"]
    return RecordedNode(
        node_name=values["node_name"],
        cpu=values["cpu"]["model"] or host["machine"],
        num_cores=values["cpu"]["num_cores"],
        memory_bytes=values["memory_bytes"],
        gpus=tuple(gpu["name"] for gpu in gpus),
        drivers=tuple(dict.fromkeys(gpu["driver_version"] for gpu in gpus)),
        gpu_problem=values["gpu_problem"],
        system=", ".join(filter(None, (host["distribution"], host["kernel"]))),
        modules=tuple(values["modules"]),
        python=values["python"],
        host_name=host["name"],
    )
