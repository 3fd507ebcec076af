"""What the entry point says of data sets of every kind, and which samples it shows."""

from __future__ import annotations

import pytest

from pipeline.data.dataset import open_dataset
from pipeline.tools import show_samples
from pipeline.tools.show_samples import run
from slurm_jobs.base.errors import StageError
from tests.pipeline.kinds import KINDS
from tests.pipeline.tools.asking import ask
from tests.pipeline.tools.build import HOSTILE, write_kind_set


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_every_kind_are_valid_and_their_pieces_are_their_text(kind, tmp_path):
    answer = ask(write_kind_set(kind, tmp_path), num=9)
    assert answer["findings"] == []
    assert (answer["num_samples"], answer["num_audited"]) == (4, 4)
    by_row = {sample["row"]: sample for sample in answer["samples"]}
    for sample in by_row.values():
        said = "".join(
            piece
            for piece, label in zip(sample["pieces"], sample["labels"], strict=True)
            if label != -100
        )
        assert len(sample["pieces"]) == len(sample["input_ids"])
        if sample["row"] == 2:
            assert "Two\n\ncups, é🙂." in said
        if sample["row"] == 3:
            assert HOSTILE in said
            assert [image["original"] for image in sample["images"]] == [
                [120, 60],
                [60, 90],
                [30, 30],
            ]
    assert by_row[0]["images"] == []
    stored = [size for image in by_row[3]["images"] for size in image["stored"]]
    assert sum(num for *_, num in answer["stored_sizes"]) > len(stored) > 2


def test_index_that_was_changed_is_refused(folder):
    path = folder / "index.arrow"
    data = bytearray(path.read_bytes())
    place = bytes(data).index(open_dataset(folder).index.num_bytes.tobytes())
    data[place + 5] ^= 1  # a sample of a terabyte
    path.write_bytes(data)
    with pytest.raises(StageError, match="the column num_bytes does not match its checksum"):
        ask(folder)


def test_progress_reaches_all_samples(folder):
    said: list[tuple[int, int, str]] = []
    values = {"folder": str(folder), "num": 0, "keys": [], "random_seed": None, "limit": None}
    run({**values, "with_pictures": False, "num_threads": 3}, lambda *words: said.append(words))
    assert max(said) == (23, 23, "samples")


def test_keys_pick_samples_and_unknown_ones_are_named(folder):
    answer = ask(folder, keys=[7, 3])
    assert [sample["key"] for sample in answer["samples"]] == ["000000007", "000000003"]
    assert ask(folder, keys=[7, 99]) == {"unknown_keys": ["000000099"]}


def test_seed_draws_the_same_samples_again_and_another_others(folder):
    def drawn(seed: int) -> list[str]:
        return [sample["key"] for sample in ask(folder, num=8, random_seed=seed)["samples"]]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(set(drawn(1))) == 8
    assert len(ask(folder, num=50, random_seed=1)["samples"]) == 23


def test_a_picture_that_does_not_decode_is_reported_in_its_place(folder, monkeypatch):
    def broken(*_: object, **__: object) -> str:
        message = "broken data stream"
        raise OSError(message)

    monkeypatch.setattr(show_samples, "data_uri", broken)
    sample = ask(folder, num=1, with_pictures=True)["samples"][0]
    problem = "image0.png cannot be decoded: broken data stream"
    assert sample["pictures"] == [{"uri": None, "problem": problem}]


def test_unfinished_data_set_is_refused(folder):
    (folder / "dataset.json").unlink()
    with pytest.raises(StageError, match="not finished; run consolidate"):
        ask(folder)
