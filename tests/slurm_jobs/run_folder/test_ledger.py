import threading
from pathlib import Path

import pytest

from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.ledger import (
    Entry,
    append_entry,
    intents,
    is_superseded,
    latest_intents,
    read_ledger,
)

INTENT = {
    "stage": "tokens",
    "slices": "0-2",
    "is_array": True,
    "fingerprint": "f",
    "job_name": "a.tokens.t1",
    "base_attempts": {},
}


def test_entries_come_back_in_the_order_they_were_written(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    assert read_ledger(folder) == []
    append_entry(folder, "intent", "t1", INTENT)
    append_entry(folder, "submitted", "t1", {"job_id": "12"})
    entries = read_ledger(folder)
    assert [(e.number, e.kind, e.token) for e in entries] == [
        (1, "intent", "t1"),
        (2, "submitted", "t1"),
    ]
    assert entries[1].values["job_id"] == "12"


def test_writers_at_the_same_time_lose_no_entry_and_share_no_number(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"

    def write(name: str) -> None:
        for i in range(20):
            append_entry(folder, "begin", f"{name}{i}", {})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = read_ledger(folder)
    assert len(entries) == len({entry.number for entry in entries}) == 80
    assert len({entry.token for entry in entries}) == 80


def test_half_written_and_foreign_files_are_no_entries(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    append_entry(folder, "intent", "t1", INTENT)
    (folder / ".000002.json.123.tmp").write_text("{")  # its writer was killed here
    (folder / "notes.txt").write_text("mine")
    assert len(read_ledger(folder)) == 1
    append_entry(folder, "submitted", "t1", {"job_id": "12"})
    assert [entry.number for entry in read_ledger(folder)] == [1, 2]


def entry(number: int, kind: str, token: str, **values: object) -> Entry:
    known = {"time_unix_s": float(number), **values}
    return Entry(number=number, kind=kind, token=token, values=known)  # type: ignore[arg-type]


def test_an_intent_gathers_what_came_of_it() -> None:
    (found,) = intents(
        [
            entry(1, "begin", "c1"),
            entry(2, "intent", "t1", **INTENT),
            entry(3, "submitted", "t1", job_id="12"),
            entry(4, "cancelled", "t1"),
            entry(5, "end", "c1"),
        ]
    )
    assert found.slices == (0, 1, 2)
    assert (found.job_id, found.cancelled, found.submitted_unix_s) == ("12", True, 3.0)
    assert found.element(2) == JobKey(found.job_name, "12_2")


def test_the_newest_intent_of_a_slice_counts_also_if_it_was_refused() -> None:
    listed = intents(
        [
            entry(1, "intent", "t1", **INTENT),
            entry(2, "intent", "t2", **{**INTENT, "slices": "1"}),
            entry(3, "intent", "t3", **{**INTENT, "slices": "2"}),
            entry(4, "refused", "t3", reason="no such partition"),
        ]
    )
    newest = latest_intents(listed, "tokens")
    assert {index: intent.token for index, intent in newest.items()} == {0: "t1", 1: "t2", 2: "t3"}
    assert is_superseded(listed, "t1", 1)
    assert not is_superseded(listed, "t1", 0)
    assert not is_superseded(listed, "t2", 1)
    assert is_superseded(listed, "t3", 2)  # should sbatch have taken it all the same


def test_a_cancelled_intent_is_superseded_and_an_unseen_one_is_unknown() -> None:
    listed = intents([entry(1, "intent", "t1", **INTENT), entry(2, "cancelled", "t1")])
    assert is_superseded(listed, "t1", 0)
    with pytest.raises(LookupError):
        is_superseded(listed, "not seen yet", 0)
