"""Which resume is offered after a failure, by its kind and by the commands that its error names."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.cli.terminal.shown_paths import command_text
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.run_status import StageStatus
from tests.slurm_jobs.cli.run_view.offered_resumes import failed, lines_of


@pytest.fixture(autouse=True)
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """The folder of the run, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return RunPaths(tmp_path / "run")


def offered(paths: RunPaths, *stages: StageStatus) -> list[str]:
    """Return the options of each resume that is offered, the better one first."""
    lines = [line for line in lines_of(paths, *stages) if line.startswith(("next:", "  or:"))]
    words = ("next:", "  or:")[: len(lines)]
    start = command_text("resume", paths.run_dir.name)
    assert all(line.startswith(f"{word} {start}") for word, line in zip(words, lines, strict=True))
    return [line.partition(start)[2].strip() for line in lines]


SHARE = "stages.c.config.max_reject_share=0.25"
ROOT = "stages.a.config.image_root=FOLDER"
UPDATE = ["--update-spec"]


@pytest.mark.parametrize(
    ("run", "values", "ways"),
    [
        ("m:f", {"kind": "wrong code"}, ["--update-code"]),
        ("m:f", {"kind": "missing package"}, ["--update-code"]),
        ("m:f", {"kind": "exception"}, [""]),
        ("train", {"kind": "wrong code"}, [""]),  # our code: an update of it is no remedy
        ("preprocess", {"kind": "missing package", "retryable": False}, [""]),
        ("shell", {"kind": "missing command"}, UPDATE),
        ("shell", {"kind": "exit code"}, [""]),
        ("preprocess", {"kind": "wrong data", "retryable": False}, [""]),
        ("preprocess", {"kind": "wrong config", "retryable": False}, UPDATE),
        ("train", {"kind": "device memory", "retryable": False}, UPDATE),
        ("train", {"kind": "packing leak", "retryable": False}, UPDATE),
        ("train", {"kind": "hang"}, [""]),
        ("train", {"kind": None, "retryable": False}, UPDATE),  # of an earlier version
        ("train", {"kind": None}, [""]),
        (
            "consolidate",
            {"kind": "wrong data", "resumes": [["--again", "prep"], ["--set", SHARE]]},
            ["--again prep", f"--set {SHARE}"],
        ),
        ("train", {"kind": "wrong config", "resumes": [["--again", "STAGE"]]}, ["--again a"]),
        (
            "preprocess",
            {"kind": "wrong data", "resumes": [["--set", ROOT]]},
            ["", f"--set {ROOT}"],
        ),
    ],
)
def test_the_resume_reads_again_what_was_at_fault(
    paths: RunPaths, run: str, values: dict[str, Any], ways: list[str]
) -> None:
    made = failed(paths, run=run, reasons=[values])
    assert offered(paths, made) == ways
    asks_to_fix = any(line.startswith("fix the spec's file") for line in lines_of(paths, made))
    assert asks_to_fix is (ways == UPDATE)


@pytest.mark.parametrize("text", ["`slurm-jobs resume RUN --set a.b=1`", "StageConfigError: x"])
def test_no_text_decides(paths: RunPaths, text: str) -> None:
    made = failed(paths, reasons=[{"kind": "exception", "reason": text}])
    assert offered(paths, made) == [""]


def test_shares_that_slices_lost_add_up(paths: RunPaths) -> None:
    values = {"kind": "wrong data", "resumes": [["--set", "a.max_reject_share=0.025"]]}
    made = failed(paths, reasons=[values] * 4)
    assert offered(paths, made) == ["--set a.max_reject_share=0.1"]


@pytest.mark.parametrize("lengths", [(1020, 520), (520, 1020)])
def test_the_longest_sample_of_all_slices_counts(paths: RunPaths, lengths: tuple[int, int]) -> None:
    stages = [
        failed(
            paths,
            name,
            reasons=[{"kind": "wrong data", "resumes": [["--set", f"x.max_tokens={length}"]]}],
        )
        for name, length in zip("ab", lengths, strict=True)
    ]
    assert offered(paths, *stages) == ["--set x.max_tokens=1020"]


def test_a_value_that_is_no_number_breaks_no_sum(paths: RunPaths) -> None:
    values = [{"resumes": [["--set", f"a.lost_share={value}"]]} for value in ("much", "0.5")]
    assert offered(paths, failed(paths, reasons=values)) == ["--set a.lost_share=0.5"]


def test_one_resume_has_the_settings_of_all_stages_that_failed(paths: RunPaths) -> None:
    settings = [f"stages.{name}.config.max_tokens=9" for name in "ab"]
    stages = [
        failed(paths, name, reasons=[{"kind": "wrong data", "resumes": [["--set", setting]]}])
        for name, setting in zip("ab", settings, strict=True)
    ]
    stages.append(failed(paths, "c", reasons=[{"kind": "wrong config", "retryable": False}]))
    sets = " ".join(f"--set {setting}" for setting in settings)
    assert offered(paths, *stages)[0] == f"{sets} --update-spec"


def set_earlier(paths: RunPaths, *overrides: str) -> None:
    """Write a resolved spec with a stage `a`, and what was given by `--set`."""
    paths.resolved_spec.parent.mkdir(parents=True, exist_ok=True)
    paths.resolved_spec.write_text(json.dumps({"stages": {"a": {}}}))
    write_json_atomic(paths.spec_origin, {"overrides": list(overrides)})


def test_a_value_of_an_earlier_set_is_changed_by_another_set(paths: RunPaths) -> None:
    """`--update-spec` would keep it; slices with the same open value share it."""
    set_earlier(paths, "stages.a.config.size=7", "limit=3")
    refused = {"kind": "wrong config", "retryable": False, "reason": "size 7 is no multiple of 2"}
    made = failed(paths, reasons=[refused, refused])
    assert offered(paths, made) == ["--set stages.a.config.size=VALUE"]


def test_a_value_set_for_another_stage_is_not_at_fault(paths: RunPaths) -> None:
    set_earlier(paths, "stages.a.shell=exit 0")
    made = failed(paths, "b", run="shell", reasons=[{"kind": "missing command", "reason": "shell"}])
    assert offered(paths, made) == UPDATE
