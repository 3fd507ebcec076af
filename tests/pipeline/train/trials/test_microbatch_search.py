"""The fewest microbatches that fit in a planted amount of memory."""

from __future__ import annotations

import pytest

from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.train.trials.conftest import AUTO, choice_of, numbers_of, room_for


def test_one_microbatch_is_used_if_all_rows_fit_in_memory(peaks):
    assert peaks.choice["key"]["devices"]
    assert (peaks.choice["num_microbatches"], peaks.choice["num_rows"]) == (1, 32)
    assert sorted(peaks.of_rows) == [1, 2, 4, 8, 16, 32]
    rising = [peaks.of_rows[rows] for rows in (1, 2, 4, 8, 16)]
    assert rising == sorted(rising)
    assert peaks.of_rows[16] > 2 * peaks.of_rows[1]


@pytest.mark.parametrize("rows", [1, 8])
def test_the_number_is_the_smallest_that_fits(peaks, memory, make_train_run, rows, caplog):
    memory.plant(room_for(peaks, rows))
    run = make_train_run(**AUTO)
    with caplog.at_level("INFO"):
        run.run_here()
    choice = choice_of(run)
    assert (choice["num_microbatches"], choice["num_rows"]) == (32 // rows, rows)
    assert numbers_of(run) == {32 // rows}
    assert max(map(int, choice["tried"])) <= 2 * rows, "no more is tried than may fit"
    counted = {1: "32 microbatches of 1 row", 8: "4 microbatches of 8 rows"}[rows]
    assert f"num_microbatches: auto takes {counted} a step on each rank" in caplog.text
    (noted,) = run.spans("microbatch_search")
    assert noted["num_microbatches"] == 32 // rows


def test_no_room_for_a_row_fails_before_the_first_step_with_remedies(peaks, memory, make_train_run):
    memory.plant(0.9 * peaks.of_rows[1])
    run = make_train_run(**AUTO)
    words = r"a single row .* memory_share \(0\.9\) .*fsdp2.*adapters.*adamw_8bit.*memory_share"
    with pytest.raises(StageConfigError, match=words):
        run.run_here()
    assert not (run.output_dir / "checkpoints").exists()
