"""The record of a checkpoint."""

import json

import pytest

from pipeline.train import checkpoint_files
from tests.pipeline.train.checkpoint.folders import edit_record, write_checkpoint


def test_record_reads_back_as_it_was_written(tmp_path):
    written = write_checkpoint(tmp_path / "step-00000004")
    assert checkpoint_files.read_info(tmp_path / "step-00000004") == written


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
        checkpoint_files.read_info(tmp_path / "step-00000004")


def test_a_folder_where_the_record_should_be_is_damage(tmp_path):
    (tmp_path / "step-00000004" / checkpoint_files.INFO_NAME).mkdir(parents=True)
    (tmp_path / "step-00000005").touch()
    for name in ("step-00000004", "step-00000005"):
        with pytest.raises(checkpoint_files.DAMAGE):
            checkpoint_files.read_info(tmp_path / name)


@pytest.mark.parametrize("record", [None, [], {"step": 4, "files": None}])
def test_record_that_is_no_mapping_is_refused(tmp_path, record):
    folder = tmp_path / "step-00000004"
    folder.mkdir()
    (folder / checkpoint_files.INFO_NAME).write_text(json.dumps(record))
    with pytest.raises(ValueError, match="expected a mapping"):
        checkpoint_files.read_info(folder)


def test_record_of_an_older_version_has_no_checksum_and_is_read(tmp_path):
    written = write_checkpoint(tmp_path / "step-00000004")
    path = tmp_path / "step-00000004" / checkpoint_files.INFO_NAME
    values = json.loads(path.read_text())
    del values["xxh3"]
    path.write_text(json.dumps(values))
    assert checkpoint_files.read_info(tmp_path / "step-00000004") == written
