"""The type of GPU on which work was begun."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.run_folder.gpu_kinds import kind_begun_on
from slurm_jobs.run_folder.paths import RunPaths


def note(paths: RunPaths, index: int, attempt: int, *, began_s: float, **values: object) -> None:
    record = {"started_unix_s": began_s, "fingerprint": "f", "gpu": "", **values}
    path = paths.attempt("train", index, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, record)


def test_work_was_begun_on_the_type_of_its_newest_attempt(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    assert kind_begun_on(paths, "train", "f", {}, (0,)) == ""
    note(paths, 0, 1, began_s=1.0, gpu="v100")
    note(paths, 0, 2, began_s=2.0, gpu="a100")
    note(paths, 0, 3, began_s=3.0)  # another scheduler, or one type alone
    note(paths, 1, 1, began_s=4.0, gpu="v100")
    assert kind_begun_on(paths, "train", "f", {}, (0,)) == "a100"
    assert kind_begun_on(paths, "train", "f", {}, (0, 1)) == "v100"


def test_the_newest_attempt_has_the_highest_number_whatever_clocks_say(
    tmp_path: Path,
) -> None:
    paths = RunPaths(tmp_path)
    note(paths, 0, 1, began_s=700.0, gpu="v100")
    note(paths, 0, 2, began_s=100.0, gpu="a100")
    assert kind_begun_on(paths, "train", "f", {}, (0,)) == "a100"


def test_attempts_at_other_work_bind_nothing(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    note(paths, 0, 1, began_s=1.0, gpu="v100", fingerprint="other")
    note(paths, 0, 2, began_s=2.0, gpu="v100", num_again=1)
    assert kind_begun_on(paths, "train", "f", {}, (0,)) == ""


def test_only_a_slice_that_was_requested_again_forgets_its_gpu_type(
    tmp_path: Path,
) -> None:
    paths = RunPaths(tmp_path)
    for index in range(2):
        note(paths, index, 1, began_s=1.0, gpu="v100")
    assert kind_begun_on(paths, "train", "f", {1: 1}, (0,)) == "v100"
    assert kind_begun_on(paths, "train", "f", {1: 1}, (1,)) == ""
