"""Failures that versions without kinds have recorded: what their texts say decides as before."""

import pytest

from slurm_jobs.formats.records.attempt_records import completion_from_json
from slurm_jobs.formats.records.old_failures import kind_of_text, resumes_in_text

REFUSED = "rank 0 on n1: StageConfigError: "


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("rank 0 on n1: NameError: name 'x' is not defined", "wrong code"),
        ("rank 0 on n1: TypeError: f() takes 1 argument but 2 were given", "wrong code"),
        ("rank 0 on n1: TypeError: unsupported operand", "exception"),
        (f"{REFUSED}`run: m:f`: /u/m.py has no function `f`", "wrong code"),
        (f"{REFUSED}`run: preprocess`: No module named 'PIL' in /p", "missing package"),
        ("rank 0 on n1 ended with exit code 127 (in a shell: not found)", "missing command"),
        ("rank 0 on n1 ended with exit code 3", "exit code"),
        ("rank 0 on n1 was killed by SIGKILL", "killed"),
        ("rank 0 on n1 ended without a record (its node or its keeper is gone)", "gone"),
        (f"{REFUSED}/d/m.csv:3: a quote is not closed", "wrong data"),
        (f"{REFUSED}/d/m.csv: no such manifest; give its path", "wrong config"),
        (f"{REFUSED}batch_size 7 is not a multiple of 2 ranks", "wrong config"),
        ("no progress for 10 min (stall_timeout_min allows 10 min here): rank 1", "hang"),
        ("rank 0 on n1: ValueError: no number", "exception"),
    ],
)
def test_the_kind_follows_from_the_text(reason: str, kind: str) -> None:
    assert kind_of_text(reason, retryable=True) == kind


@pytest.mark.parametrize(
    ("text", "resumes"),
    [
        ("begin with `slurm-jobs resume RUN --again STAGE`", [["--again", "STAGE"]]),
        ("or `slurm-jobs resume '/a b' --set x.y=2`", [["--set", "x.y=2"]]),
        ("`slurm-jobs resume RUN --set x.image_root=FOLDER`", [["--set", "x.image_root=FOLDER"]]),
        ("`slurm-jobs resume RUN --set a.KEY=VALUE`", []),
        ("`slurm-jobs resume RUN --set x.share=SHARE`", []),
        ("no command", []),
    ],
)
def test_commands_in_the_text_are_offered(text: str, resumes: list[list[str]]) -> None:
    assert resumes_in_text(text) == resumes


def test_only_a_record_without_a_kind_is_judged_by_its_text() -> None:
    values = {
        "stage": "a",
        "slice_index": 0,
        "attempt": 1,
        "job_id": "1",
        "token": "t",
        "outcome": "failed",
        "fingerprint": "f",
        "started_unix_s": 0.0,
        "ended_unix_s": 1.0,
        "exit_code": 1,
        "reason": f"{REFUSED}fix it, then `slurm-jobs resume RUN --again STAGE`",
    }
    old = completion_from_json(values)
    assert (old.kind, old.resumes) == ("wrong config", (("--again", "STAGE"),))
    new = completion_from_json({**values, "kind": "exception", "resumes": []})
    assert (new.kind, new.resumes) == ("exception", ())
    for forged in (None, 3, [3], [["--set"]], [["rm -rf"]], "text"):
        record = completion_from_json({**values, "kind": [], "resumes": forged})
        assert (record.kind, record.resumes) == (None, ())
