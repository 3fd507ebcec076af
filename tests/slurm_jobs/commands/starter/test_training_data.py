"""The data that a path means, with the columns that a list gives them."""

from __future__ import annotations

import json
from pathlib import Path

from slurm_jobs.commands.starter.training_data import TrainingDataSearch
from tests.pipeline.build import write_image

_TURNS = [{"role": "user", "content": "<image>Why?"}, {"role": "assistant", "content": "So."}]


def test_columns_of_a_list_find_the_pictures_and_the_lengths(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "pictures").mkdir(parents=True)
    write_image(data / "pictures/one.png")
    row = {"chat": _TURNS, "messages": "of the forum", "photo": ["one.png"], "image": "scan.png"}
    (data / "rows.json").write_text(json.dumps([row] * 3))
    columns = {"messages": "chat", "images": "photo"}
    listed = {"mine": {"file_name": "rows.json", "columns": columns}}
    (data / "dataset_info.json").write_text(json.dumps(listed))
    found = TrainingDataSearch(tmp_path, "mine", None).search(data)
    assert found.data.columns == {"messages": "chat", "image": "photo"}
    assert found.data.image_root == str(data / "pictures")
    assert [size.num_text_bytes > 0 for size in found.sizes] == [True] * 3
