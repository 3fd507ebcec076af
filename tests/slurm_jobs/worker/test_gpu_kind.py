"""scontrol is a program of the test's own; the real one is asked in tests/end_to_end."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.worker.environment import keep_kind, kind_of_node
from tests.slurm_jobs.worker.orders import order


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a `scontrol` that prints the file `out` and notes its arguments."""
    (tmp_path / "scontrol").write_text(
        f'#!/bin/bash\necho "$*" >> {tmp_path}/calls\necho "$(<{tmp_path}/out)"\n'
        f'test "$(wc -l < {tmp_path}/calls)" -gt "$(<{tmp_path}/fails)"\n'
    )
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "fails").write_text("0")
    (tmp_path / "out").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("NodeName=n1 ActiveFeatures=ib,v100 Gres=gpu:4", "v100"),
        ("NodeName=n1 ActiveFeatures=(null) Gres=gpu:a100:4(S:0-1)", "a100"),
        ("NodeName=n1 ActiveFeatures=h100 Gres=gpu:h100:8", ""),
    ],
)
def test_a_nodes_type_is_told_by_its_features_or_gpus(
    answers: Path, said: str, expected: str
) -> None:
    (answers / "out").write_text(said)
    assert kind_of_node(order(gpu=("a100", "v100")), "n1") == expected


def test_where_one_type_is_asked_for_nobody_is_asked(answers: Path) -> None:
    assert kind_of_node(order(gpu=("a100",)), "n1") == ""
    assert not (answers / "calls").exists()


def test_a_requeued_job_is_bound_to_a_type_beside_the_users_own_constraint(answers: Path) -> None:
    (answers / "fails").write_text("2")  # ended with the job, twice
    given = order(gpu=("a100", "v100"), slurm={"constraint": "ib"})
    assert keep_kind(given, "12_3", "v100") is None
    calls = (answers / "calls").read_text().splitlines()
    assert calls == ["update JobId=12_3 Features=v100&ib"] * 3
