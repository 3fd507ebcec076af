"""What the entry point says of data sets of every kind, sound ones and broken ones."""

from __future__ import annotations

import base64
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.tools import sample_audit, show_samples
from pipeline.tools.show_samples import run
from slurm_jobs.base.errors import StageError
from tests.pipeline.kinds import KINDS
from tests.pipeline.tools.build import HOSTILE, change_samples, write_kind_set


@pytest.fixture
def folder(dataset_dir: Path, tmp_path: Path) -> Path:
    """A copy of a data set of 23 samples in 3 shards, of a test's own."""
    return Path(shutil.copytree(dataset_dir, tmp_path / "set"))


def ask(folder: Path, **arguments: Any) -> dict[str, Any]:
    values = {
        "folder": str(folder),
        "num": 2,
        "keys": [],
        "random_seed": None,
        "limit": None,
        "with_pictures": False,
        "num_threads": 2,
        **arguments,
    }
    return run(values, lambda _done, _total, _unit: None)


def unlearn(tokens: np.ndarray) -> np.ndarray:
    tokens[1] = -100
    return tokens


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


@pytest.mark.parametrize("kind", ["llava", "llava_next", "smolvlm", "qwen2_vl"])
def test_a_missing_image_token_is_reported_for_every_way_to_count_them(kind, tmp_path):
    folder = write_kind_set(kind, tmp_path)
    token_id = read_dataset_info(folder).image_token_id

    def without_one(tokens: np.ndarray) -> np.ndarray:
        return np.delete(tokens, int(np.flatnonzero(tokens[0] == token_id)[0]), axis=1)

    change_samples(folder, {1: without_one})
    (finding,) = ask(folder)["findings"]
    assert (finding["kind"], finding["key"]) == ("image_tokens", "000000001")
    num_expected = int(finding["message"].rpartition(" ")[2])
    assert finding["message"].startswith(f"{num_expected - 1} image tokens, but ")


def test_every_kind_of_fault_is_reported_with_key_and_shard(folder):
    image = read_dataset_info(folder).image_token_id

    def learn_images(tokens: np.ndarray) -> np.ndarray:
        tokens[1][tokens[0] == image] = image
        return tokens

    def learn_the_first(tokens: np.ndarray) -> np.ndarray:
        tokens[1][0] = tokens[0][0]
        return tokens

    def shift(tokens: np.ndarray) -> np.ndarray:
        tokens[1] = np.append(tokens[1][1:], -100)
        return tokens

    def no_token(tokens: np.ndarray) -> np.ndarray:
        tokens[0][3] = 99_999
        return tokens

    changes = {2: unlearn, 5: learn_images, 7: learn_the_first, 11: shift, 13: no_token}
    change_samples(folder, changes, images={17: 0})
    answer = ask(folder)
    kinds = {finding["key"]: finding["kind"] for finding in answer["findings"]}
    assert kinds == {
        "000000002": "nothing_supervised",
        "000000005": "image_token_supervised",
        "000000007": "first_token_supervised",
        "000000011": "label_differs",
        "000000013": "unknown_token",
        "000000017": "num_images",
    }
    assert answer["num_findings"] == dict.fromkeys(kinds.values(), 1)
    index = open_dataset(folder).index
    shard_of = dict(zip(index.key.tolist(), index.shard.tolist(), strict=True))
    for finding in answer["findings"]:
        assert finding["shard"] == f"shards/shard-{shard_of[int(finding['key'])]:06d}.tar"


def test_limit_reads_the_first_and_asks_the_index_of_the_others(folder):
    keys = open_dataset(folder).index.key.tolist()

    def no_token(tokens: np.ndarray) -> np.ndarray:
        tokens[0][3] = 99_999
        return tokens

    change_samples(folder, {keys[4]: no_token, keys[20]: unlearn, keys[21]: no_token})
    answer = ask(folder, limit=5)
    found = [(finding["kind"], int(finding["key"])) for finding in answer["findings"]]
    assert found == [("unknown_token", keys[4]), ("nothing_supervised", keys[20])]
    assert answer["num_audited"] == 5


def test_findings_beyond_the_most_are_counted(folder, monkeypatch):
    monkeypatch.setattr(sample_audit, "MOST_FINDINGS", 3)
    change_samples(folder, dict.fromkeys(range(10), unlearn))
    answer = ask(folder)
    assert len(answer["findings"]) == 3
    assert answer["num_findings"] == {"nothing_supervised": 10}


def test_damaged_and_missing_shards_are_reported_for_each_sample(folder):
    index = open_dataset(folder).index
    path = folder / "shards" / "shard-000001.tar"
    numbers = [number for number in range(23) if index.shard[number] == 1]
    path.write_bytes(path.read_bytes()[: int(index.offset[numbers[-1]]) + 600])
    (folder / "shards" / "shard-000002.tar").unlink()
    answer = ask(folder, num=23)
    lost = [int(index.key[number]) for number in range(numbers[-1], 23)]
    assert [int(finding["key"]) for finding in answer["findings"]] == lost
    assert answer["num_findings"] == {"unreadable": len(lost)}
    assert "cut short" in answer["findings"][0]["message"]
    assert answer["findings"][1]["message"] == "its shard is missing"
    unread = [sample for sample in answer["samples"] if sample["problem"] is not None]
    assert [int(sample["key"]) for sample in unread] == lost


def test_garbage_within_a_sample_is_reported_and_the_others_are_shown(folder):
    index = open_dataset(folder).index
    with (folder / "shards" / "shard-000000.tar").open("r+b") as stream:
        stream.seek(int(index.offset[1]) + 512 + 10)
        stream.write(b"{'descr': ((")  # the header of tokens.npy
        stream.seek(int(index.offset[2]))
        stream.write(bytes(range(200)))
    answer = ask(folder, num=4)
    keys = [f"{index.key[number]:09d}" for number in (1, 2)]
    assert [finding["key"] for finding in answer["findings"]] == keys
    assert answer["num_findings"] == {"unreadable": 2}
    assert [sample["problem"] is None for sample in answer["samples"]] == [True, False, False, True]


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


@pytest.mark.parametrize("image_format", ["png", "jpeg", "raw"])
def test_pictures_are_those_of_the_shard(make_dataset, image_format):
    folder = make_dataset(5, image_format=image_format)
    dataset = open_dataset(folder)
    answer = ask(folder, with_pictures=True)
    for number, sample in enumerate(answer["samples"]):
        (picture,) = sample["pictures"]
        kind, _, data = picture["uri"].partition(";base64,")
        assert kind == ("data:image/jpeg" if image_format == "jpeg" else "data:image/png")
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
        stored = dataset.sample(number).images[0]
        assert np.array_equal(shown, stored)


def test_pictures_shrink_to_the_budget(folder, monkeypatch):
    monkeypatch.setattr(show_samples, "_PICTURES_BYTES", 2)
    monkeypatch.setattr(show_samples, "_LEAST_PICTURE_BYTES", 1)
    ((picture,),) = [
        sample["pictures"] for sample in ask(folder, num=1, with_pictures=True)["samples"]
    ]
    assert picture["uri"].startswith("data:image/jpeg")


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
