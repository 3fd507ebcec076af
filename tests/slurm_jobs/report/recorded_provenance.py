"""A run with records of its submits, nodes and packages."""

from __future__ import annotations

import json

import pytest

EVIL = "<script>alert(1)</script>"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_values(**changes):
    values = {
        "folder": "/home/ada",
        "commit": COMMIT,
        "branch": "main",
        "remotes": {"origin": "https://host.example/r.git"},
        "is_dirty": False,
        "num_changed": 0,
        "changed": [],
        "num_untracked": 0,
        "untracked": [],
        "diff_bytes": 0,
        "diff_is_cut": False,
        "problems": [],
    }
    return {**values, **changes}


def submission(number=1, **git_changes):
    return {
        "number": number,
        "recorded_unix_s": 1.7e9 + number,
        "slurm_jobs_version": "0.1.0",
        "command": ["/envs/bin/slurm-jobs", "submit" if number == 1 else "resume", EVIL],
        "overrides": [],
        "working_dir": "/home/ada",
        "git": git_values(**git_changes),
        "host": {"name": "login-1", "kernel": "Linux 5", "machine": "x86_64", "distribution": "D"},
        "python": {
            "executable": "/usr/bin/python3",
            "version": "3.11.7",
            "implementation": "CPython",
            "packages": {"slurm-jobs": "0.1.0", "submitit": "1.5.4", "zzz": "9"},
        },
        "slurm": {"version": "slurm 23.11.4", "problem": ""},
    }


def node(name, *, num_gpus=0, gpu="NVIDIA A100-SXM4-40GB", python="py1", **changes):
    values = {
        "node_name": name,
        "node_rank": 0,
        "noted_unix_s": 1.7e9,
        "host": {
            "name": name,
            "kernel": "Linux 5.14",
            "machine": "x86_64",
            "distribution": "Rocky",
        },
        "cpu": {"model": "AMD EPYC 7763", "num_cores": 128, "num_usable_cores": 8},
        "memory_bytes": 512 * 2**30,
        "gpus": [
            {
                "index": f"{i}",
                "name": gpu,
                "uuid": "u",
                "memory_bytes": 1,
                "driver_version": "570.1",
            }
            for i in range(num_gpus)
        ],
        "gpu_problem": "",
        "modules": ["cuda/12.4"],
        "variables": {"SLURM_JOB_ID": "12"},
        "python": python,
        "python_on_path": None,
    }
    return {**values, **changes}


PYTHON = {
    "executable": "/envs/train/bin/python",
    "version": "3.12.1",
    "implementation": "CPython",
    "packages": {"torch": "2.13.0+cu126", "transformers": "5.23.0", "wheel": "1"},
}


@pytest.fixture
def run(run_of):
    """A run of four preprocessing tasks and one training of two nodes; nothing noted yet."""
    return run_of(num_ranks=16, num_steps=3, stopped_at=None)[0]


def write(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


@pytest.fixture
def noted(run):
    """Two kinds of CPU nodes, and two GPU nodes that are alike but for a few pages of memory."""
    write(run.provenance(1), submission(is_dirty=True, num_changed=3, diff_bytes=2048))
    for index in range(4):
        attempt = 2 if index == 1 else 1
        model = {"model": "Intel" if index == 3 else "AMD EPYC 7763", "num_cores": 128}
        facts = node(f"cpu-0{index}", cpu=model)
        write(run.node_facts("preprocess", index, attempt, 0), facts)
    for rank in range(2):
        facts = node(f"gpu-0{rank}", num_gpus=8, memory_bytes=1024 * 2**30 - rank * 4096)
        write(run.node_facts("train", 0, 1, rank), facts)
    write(run.python("py1"), PYTHON)
    return run
