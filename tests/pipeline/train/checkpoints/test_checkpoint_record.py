"""Records of checkpoints: read back as written, and damage of the record itself."""

import json

import pytest

from pipeline.train.checkpoints import checkpoint_record
from pipeline.train.checkpoints.checkpoint_record import INFO_NAME
from tests.pipeline.train.checkpoints.folders import edit_record, write_checkpoint


def test_record_reads_back_as_written_even_without_a_checksum(
    tmp_path,
):
    folder = tmp_path / "step-00000004"
    written = write_checkpoint(folder)
    assert checkpoint_record.read_info(folder) == written
    values = json.loads((folder / INFO_NAME).read_text())
    del values["xxh3"]
    (folder / INFO_NAME).write_text(json.dumps(values))
    assert checkpoint_record.read_info(folder) == written


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": 0.5}, r"its values have xxh3 \w{12}, written were \w{12}"),
        ({"step": 3}, "its values have xxh3"),
        ({"step": 3, "xxh3": None}, "step 3 in a folder called step-00000004"),
    ],
)
def test_changed_record_is_not_believed(tmp_path, changes, words):
    write_checkpoint(tmp_path / "step-00000004")
    edit_record(tmp_path / "step-00000004", **changes)
    with pytest.raises(ValueError, match=words):
        checkpoint_record.read_info(tmp_path / "step-00000004")


@pytest.mark.parametrize("record", [None, [], {"step": 4, "files": None}])
def test_record_that_is_no_mapping_is_refused(tmp_path, record):
    folder = tmp_path / "step-00000004"
    folder.mkdir()
    (folder / INFO_NAME).write_text(json.dumps(record))
    with pytest.raises(ValueError, match="expected a mapping"):
        checkpoint_record.read_info(folder)


def test_a_folder_where_the_record_should_be_is_damage(tmp_path):
    (tmp_path / "step-00000004" / INFO_NAME).mkdir(parents=True)
    (tmp_path / "step-00000005").touch()
    for name in ("step-00000004", "step-00000005"):
        with pytest.raises(checkpoint_record.DAMAGE):
            checkpoint_record.read_info(tmp_path / name)
