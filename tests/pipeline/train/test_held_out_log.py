"""The file of looks at held-out samples: whole lines, and which of them belong together."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from pipeline.train.held_out import HELD_OUT_NAME, HeldOutLog, Look, lowest, read_looks

LOOK = Look(
    step=2, loss=0.5, level_losses={}, num_tokens=8, num_answers=4, num_exact=3, duration_s=0.1
)


def test_what_a_kill_cut_short_is_left_out_and_spoils_nothing_after_it(tmp_path):
    path = tmp_path / HELD_OUT_NAME
    log = HeldOutLog(path, attempt=1, trainings={"t": 6}, basis="b")
    log.write(LOOK)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    HeldOutLog(path, attempt=2, trainings={"t": 6}, basis="b").write(LOOK)
    HeldOutLog(path, attempt=2, trainings={"other": 6}, basis="b").write(LOOK)
    assert read_looks(path, {"t"}) == [LOOK]
    assert LOOK.exact_match == 0.75


def test_a_full_disk_fails_no_training(tmp_path, caplog):
    HeldOutLog(tmp_path / "nowhere" / "file", attempt=1, trainings={"t": 6}, basis="b").write(LOOK)
    assert "cannot be written" in caplog.text


def test_looks_of_the_newest_basis_belong_together(tmp_path):
    path = tmp_path / HELD_OUT_NAME
    first = HeldOutLog(path, attempt=1, trainings={"t": 6}, basis="a")
    for step in (2, 4):
        first.write(replace(LOOK, step=step))
    second = HeldOutLog(path, attempt=2, trainings={"t": 6}, basis="b")
    assert first.has(4)
    assert not second.has(4)
    second.write(replace(LOOK, step=6))
    assert [look.step for look in read_looks(path, {"t"})] == [6]
    assert not second.has(4)
    assert second.has(6)


def test_what_a_look_finds_is_no_point_of_the_curve_of_the_evaluation_at_the_end(tmp_path):
    told = {}
    path = tmp_path / HELD_OUT_NAME
    HeldOutLog(path, attempt=1, trainings={"t": 6}, basis="b", tell=told.__setitem__).write(LOOK)
    assert told == {2: {"look/loss": 0.5, "look/exact_match": 0.75}}


def test_a_loss_that_is_no_number_is_null_and_never_the_lowest(tmp_path):
    path = tmp_path / HELD_OUT_NAME
    log = HeldOutLog(path, attempt=1, trainings={"t": 6}, basis="b")
    levels = {"a": math.nan, "b": 0.5}
    log.write(replace(LOOK, step=1, loss=math.nan, level_losses=levels))
    log.write(replace(LOOK, step=2, loss=math.inf))
    assert lowest(read_looks(path, {"t"})) is None
    log.write(replace(LOOK, step=3))
    looks = read_looks(path, {"t"})
    assert lowest(looks) == looks[2]
    assert math.isnan(looks[0].loss)
    assert math.isnan(looks[0].level_losses["a"])
    first = path.read_text().splitlines()[0]
    assert "NaN" not in first
    assert json.loads(first)["level_losses"] == {"a": None, "b": 0.5}


def test_looks_in_phases_that_stay_are_kept_where_a_later_phase_changes(tmp_path):
    path = tmp_path / HELD_OUT_NAME
    first = HeldOutLog(path, attempt=1, trainings={"a": 3, "ab": 6}, basis="b")
    for step in (2, 3, 4):
        first.write(replace(LOOK, step=step))
    changed = {"a": 3, "ab2": 5}
    second = HeldOutLog(path, attempt=2, trainings=changed, basis="b")
    assert [second.has(step) for step in (2, 3, 4)] == [True, True, False]
    second.write(replace(LOOK, step=5))
    assert [look.step for look in read_looks(path, changed)] == [2, 3, 5]
    assert [look.step for look in read_looks(path, {"a": 3, "ab": 6})] == [2, 3, 4]
