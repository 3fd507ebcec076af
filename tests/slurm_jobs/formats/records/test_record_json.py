"""Records that a later version wrote, or that are no mapping."""

from typing import Any

import pytest

from slurm_jobs.formats.records.attempt_records import attempt_from_json, completion_from_json
from slurm_jobs.formats.records.record_json import record_to_json
from tests.slurm_jobs.formats.records.whole_records import ATTEMPT, COMPLETION


@pytest.mark.parametrize(
    ("record", "from_json"), [(ATTEMPT, attempt_from_json), (COMPLETION, completion_from_json)]
)
def test_a_record_of_a_later_version_is_read_without_what_is_new(record, from_json):
    assert from_json({**record_to_json(record), "of_tomorrow": 1}) == record


@pytest.mark.parametrize("values", [[], None, 3, "x"])
def test_a_record_that_is_no_mapping_is_damage(values: Any) -> None:
    for read in (attempt_from_json, completion_from_json):
        with pytest.raises(TypeError):
            read(values)
