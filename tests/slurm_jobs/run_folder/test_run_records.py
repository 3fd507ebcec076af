from pathlib import Path

import pytest

from slurm_jobs.base.errors import DamagedFileError, InputError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import (
    last_plan_number,
    read_meta,
    read_plan_values,
    read_run,
)

META = {
    "run_id": "words-20250101-000000-aaaa",
    "name": "words",
    "created_unix_s": 1.0,
    "submitted_by": "ada",
    "host": "login-1",
    "scheduler": "local",
    "version": "0.1.0",
    "spec_file": "/home/ada/words.yaml",
    "max_cpus": 2,
}
STAGE = {
    "name": "a",
    "run": "shell",
    "num_slices": 12,
    "is_array": True,
    "retries": 0,
    "fingerprint": "f",
    "after": {},
}
INTENT = {
    "stage": "a",
    "slices": "0-11",
    "is_array": True,
    "fingerprint": "f",
    "job_name": "words.a.t1",
    "base_attempts": {"3": 2},
}


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run that was just made: nothing in it but `run.json`."""
    write_json_atomic(tmp_path / "run.json", META)
    return RunPaths(tmp_path)


def write_plan_values(paths: RunPaths, number: int, *stages: dict[str, object]) -> None:
    paths.plans_dir.mkdir(exist_ok=True)
    write_json_atomic(paths.plan(number), {"number": number, "stages": list(stages)})


def touch(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")


def test_a_folder_without_run_json_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run folder"):
        read_run(tmp_path)


def test_a_run_whose_submit_was_cut_off_before_its_plan_says_so(paths: RunPaths) -> None:
    assert last_plan_number(paths) == 0
    with pytest.raises(InputError, match="submit the spec again"):
        read_run(paths.run_dir)


def test_the_newest_plan_counts_also_beyond_four_digits(paths: RunPaths) -> None:
    for number in (1, 2, 9999, 10000):
        write_plan_values(paths, number)
    (paths.plans_dir / ".0003.json.123.tmp").write_text("{")  # its writer was killed here
    assert last_plan_number(paths) == 10000
    assert read_plan_values(paths)["number"] == 10000


def test_additions_of_a_later_version_are_ignored(paths: RunPaths) -> None:
    write_json_atomic(paths.run_json, {**META, "colour": "red"})
    write_plan_values(paths, 1, {**STAGE, "resources": {}, "colour": "red"})
    assert read_meta(paths).max_cpus == 2
    assert read_run(paths.run_dir).stages[0].name == "a"


def test_a_run_that_was_never_started_reads_back_empty(paths: RunPaths) -> None:
    write_plan_values(paths, 1, STAGE)
    run = read_run(paths.run_dir)
    assert run.intents == ()
    assert run.jobs == {}
    assert run.records["a"].attempts == run.records["a"].endings == {}


def test_attempts_and_outcomes_come_from_the_names_of_the_records_alone(paths: RunPaths) -> None:
    write_plan_values(paths, 1, STAGE)
    names = ["s00003.a0002.json", "s00003.a0001.json", "s00011.a0010.json", "s00011.a0009.json"]
    touch(paths.attempts_dir("a"), *names, ".s00004.a0001.json.12.tmp", "notes.txt")
    touch(
        paths.completions_dir("a"),
        "s00003.a0001.t1.failed.json",
        "s00003.a0002.t2.completed.json",
        "s00011.a0009.t1.stopped.json",
        "s00011.a0010.t1.exploded.json",
        ".s00005.a0001.t1.completed.json.12.tmp",
    )
    records = read_run(paths.run_dir).records["a"]
    assert records.attempts == {3: (1, 2), 11: (9, 10)}
    assert records.endings == {
        3: {1: (3, 1, "t1", "failed"), 2: (3, 2, "t2", "completed")},
        11: {9: (11, 9, "t1", "stopped")},
    }


def test_intents_of_the_ledger_come_with_what_became_of_them(paths: RunPaths) -> None:
    write_plan_values(paths, 1, STAGE)
    append_entry(paths.ledger_dir, "intent", "t1", INTENT)
    append_entry(paths.ledger_dir, "submitted", "t1", {"job_id": "12"})
    append_entry(paths.ledger_dir, "intent", "t2", {**INTENT, "slices": "3"})
    run = read_run(paths.run_dir)
    assert list(run.jobs.values()) == ["12"]
    assert [intent.slices for intent in run.intents] == [tuple(range(12)), (3,)]
    assert run.intents[0].base_attempts == {3: 2}


@pytest.mark.parametrize("text", ["[]", "{}", "3", '{"run_id": "a"}', "{"])
def test_a_damaged_description_of_a_run_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DamagedFileError, match=r"run\.json is damaged \(.* restore the file"):
        read_meta(RunPaths(tmp_path))
