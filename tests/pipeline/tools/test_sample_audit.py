"""What the audit of all samples finds: faults, damage, and how much of it is listed."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.tools import sample_audit
from tests.pipeline.tools.asking import ask
from tests.pipeline.tools.build import change_samples, write_kind_set


def unlearn(tokens: np.ndarray) -> np.ndarray:
    tokens[1] = -100
    return tokens


@pytest.mark.parametrize(
    "kind", ["llava", "llava_next", "llava_onevision", "smolvlm", "internvl", "qwen2_vl"]
)
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
