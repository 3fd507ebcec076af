"""Who uses a copy and who may take it away: real locks between real processes."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from pipeline.stage_in.store import Store
from slurm_jobs.base.errors import StageStoppedError


def go_on() -> None:
    pass


def use(store: Store, name: str, num_bytes: int = 0):
    with store.locked(go_on):
        lease = store.take(name)
    if num_bytes:
        (lease.folder / "shards" / "shard-000000.tar").write_bytes(bytes(num_bytes))
    return lease


def others(store: Store, name: str = "mine") -> dict[str, tuple[int, bool]]:
    with store.locked(go_on):
        return {found.fingerprint: (found.num_bytes, found.in_use) for found in store.others(name)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(root=tmp_path / "local")
    use(found, "mine").release()
    return found


def use_until_killed(store: Store, told) -> None:
    lease = use(store, "theirs", 100)
    with store.locked(go_on):
        assert lease.begin_copying()
        lease.reserve(1000)
    told.set()
    multiprocessing.Event().wait()


def test_a_copy_is_in_use_until_its_process_ends_however_it_ends(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    told = context.Event()
    process = context.Process(target=use_until_killed, args=(store, told))
    process.start()
    told.wait()
    size = (store.root / "datasets/theirs/copying").stat().st_size + 100
    during = others(store)
    with store.locked(go_on):
        found = store.others("mine")
        full, alone = store.room("mine", None, found), store.room("mine", None, [])
    process.kill()
    process.join()
    assert during == {"theirs": (1000, True)}  # what is reserved counts, too
    assert alone.free_bytes - full.free_bytes == pytest.approx(1000 - size, abs=1 << 20)
    assert others(store) == {"theirs": (size, False)}


def test_several_ranks_share_a_copy_and_one_of_them_copies(store: Store) -> None:
    first, second = use(store, "mine"), use(store, "mine")
    with store.locked(go_on):
        assert first.begin_copying()
        assert not second.begin_copying()
        first.end_copying()
        assert second.begin_copying()


def test_a_release_notes_when_a_copy_was_last_used(store: Store) -> None:
    lease = use(store, "theirs")
    path = lease.folder / "in-use"
    os.utime(path, (1, 1))
    lease.release()
    lease.release()  # once more does nothing
    assert path.stat().st_mtime > 1
    os.utime(path, (1, 1))
    use(store, "theirs").release()
    assert path.stat().st_mtime > 1


def test_an_evicted_copy_is_gone_and_what_a_crash_left_of_one_goes_later(store: Store) -> None:
    use(store, "theirs", 100).release()
    (store.root / "datasets/.evicted-0123/shards").mkdir(parents=True)
    with store.locked(go_on):
        store.others("mine")
        store.evict("theirs")
    assert [path.name for path in (store.root / "datasets").iterdir()] == ["mine"]


def test_what_a_killed_copy_left_is_cleaned(store: Store) -> None:
    lease = use(store, "mine", 7)
    (lease.folder / "shards/.shard-000001.tar.0123.tmp").write_bytes(b"half")
    (lease.folder / ".boot-id.0123.tmp").touch()
    lease.clean()
    assert lease.present() == {"shard-000000.tar": 7}
    assert {path.name for path in lease.folder.iterdir()} == {"in-use", "shards"}


def test_a_copy_of_another_boot_is_known(store: Store) -> None:
    lease = use(store, "mine")
    assert not lease.of_this_boot()
    lease.note_boot()
    assert lease.of_this_boot()
    (lease.folder / "boot-id").write_bytes(b"another")
    assert not lease.of_this_boot()


def test_who_waits_for_the_lock_heeds_a_stop(store: Store) -> None:
    def stop() -> None:
        raise StageStoppedError

    with store.locked(go_on), pytest.raises(StageStoppedError), store.locked(stop):
        pass
