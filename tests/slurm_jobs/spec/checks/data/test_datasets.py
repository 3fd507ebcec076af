import hashlib
import json
import shutil
from pathlib import Path

import pytest

from slurm_jobs.commands.spec_reading import disk_files
from tests.slurm_jobs.spec.conftest import Check

PLACE = "10:16: stages.t.config.dataset: "


def spec(dataset: str) -> str:
    return f"""\
name: a
cluster: local
stages:
  t:
    run: train
    config:
      device: cpu
      strategy: single
      num_steps: 1
      dataset: {dataset}
"""


@pytest.mark.parametrize(
    ("files", "dataset", "remedy"),
    [
        (("d/index.arrow",), "d", "give the folder that `consolidate` wrote (data/STAGE of a run)"),
        (("d/index.arrow",), "d", "is named `${STAGE.output_dir}`"),
        (("d/dataset.json", "d/shards/shard-000000.tar"), "d/shards", "give d"),
        (("d/dataset.json",), "d/dataset.json", "give d"),
        (("rows.jsonl",), "rows.jsonl", "give "),
        (("r/a/data/consolidate/dataset.json",), "r/a", "run: give r/a/data/consolidate"),
    ],
)
def test_what_is_no_finished_data_set_is_refused_at_its_line(
    check: Check, tmp_path: Path, files: tuple[str, ...], dataset: str, remedy: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (line,) = check(spec(dataset))
    assert line.startswith(f"{PLACE}{dataset} is not a finished data set: it has no dataset.json; ")
    assert remedy in line


def test_a_finished_data_set_and_one_that_a_stage_makes_have_no_problem(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "dataset.json").write_text("{}")
    assert check(spec("d")) == []
    made = spec("'${m.output_dir}'").replace("    run", "    after: m\n    run")
    assert check(f"{made}  m: {{shell: make}}\n") == []


def finished(folder: Path, sizes: dict[str, int]) -> None:
    """Write a data set of shards of these sizes."""
    (folder / "shards").mkdir(parents=True)
    for name, size in sizes.items():
        (folder / "shards" / name).write_bytes(bytes(size))
    shards = [{"name": name, "num_bytes": size} for name, size in sizes.items()]
    (folder / "dataset.json").write_text(json.dumps({"shards": shards}))


@pytest.mark.parametrize(
    ("size", "said"), [(None, "is missing"), (19, "has 19 bytes, expected 20")]
)
def test_missing_shards_and_those_of_another_size_are_a_problem(
    check: Check, tmp_path: Path, size: int | None, said: str
) -> None:
    finished(tmp_path / "d", {"a.tar": 10, "b.tar": 20, "c.tar": 30})
    assert check(spec("d")) == []
    (tmp_path / "d" / "shards" / "b.tar").unlink()
    (tmp_path / "d" / "shards" / "c.tar").unlink()
    if size is not None:
        (tmp_path / "d" / "shards" / "b.tar").write_bytes(bytes(size))
    (line,) = check(spec("d"))
    assert line.startswith(f"{PLACE}d: 2 of 3 shards missing or of another size than ")
    assert f"the first, shards/b.tar, {said}; `slurm-jobs verify d` names all" in line
    shutil.rmtree(tmp_path / "d" / "shards")
    (line,) = check(spec("d"))
    assert "d: 3 of 3 shards missing" in line


def test_a_size_that_is_no_number_differs_from_every_size(check: Check, tmp_path: Path) -> None:
    finished(tmp_path / "d", {"a.tar": 10})
    shards = [{"name": "a.tar", "num_bytes": [10]}]
    (tmp_path / "d" / "dataset.json").write_text(json.dumps({"shards": shards}))
    (line,) = check(spec("d"))
    assert "shards/a.tar, has 10 bytes, expected [10]" in line


def test_of_very_many_shards_only_the_names_are_checked(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_files, "MOST_SIZES", 2)
    finished(tmp_path / "d", {f"{number}.tar": 10 for number in range(4)})
    (tmp_path / "d" / "shards" / "2.tar").write_bytes(b"")
    assert check(spec("d")) == []
    (tmp_path / "d" / "shards" / "2.tar").unlink()
    (line,) = check(spec("d"))
    assert "d: 1 of 4 shards missing or of another size" in line
    assert "shards/2.tar, is missing" in line


def test_a_processor_file_that_was_changed_is_a_problem_of_the_data_set(
    check: Check, tmp_path: Path
) -> None:
    finished(tmp_path / "d", {"a.tar": 10})
    template = tmp_path / "d" / "processor" / "chat_template.jinja"
    template.parent.mkdir()
    template.write_text("{{ messages }}")
    info = tmp_path / "d" / "dataset.json"
    values = json.loads(info.read_text())
    checksum = hashlib.sha256(template.read_bytes()).hexdigest()
    info.write_text(json.dumps(values | {"processor_sha256": {template.name: checksum}}))
    assert check(spec("d")) == []
    template.write_text("{{ messages }} ")
    (line,) = check(spec("d"))
    assert line.startswith(
        f"{PLACE}d: processor: chat_template.jinja was changed since `consolidate`: "
    )
    assert "Put the files back, or run `consolidate` again" in line
    info.write_text(json.dumps(values))  # of an older version
    assert check(spec("d")) == []
