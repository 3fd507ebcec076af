"""What is copied, what is left out and what is evicted, decided from numbers alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.disk_format.dataset_info import ShardInfo
from pipeline.stage_in.copy_plan import SPARE_BYTES, DiskRoom, OtherCopy, plan_copy

ROOM = DiskRoom(free_bytes=1000 + SPARE_BYTES, cap_bytes=None, present_bytes=0)


def shards(*sizes: int) -> list[ShardInfo]:
    return [
        ShardInfo(name=f"shard-{i:06d}.tar", num_bytes=size, xxh3="", num_samples=1)
        for i, size in enumerate(sizes)
    ]


def other(name: str, num_bytes: int, used_unix_s: float, *, in_use: bool = False) -> OtherCopy:
    return OtherCopy(fingerprint=name, num_bytes=num_bytes, used_unix_s=used_unix_s, in_use=in_use)


def test_everything_is_copied_where_it_fits_to_the_byte() -> None:
    plan = plan_copy(shards(400, 600), ROOM, [other("old", 5, 1.0)])
    assert [shard.num_bytes for shard in plan.copied] == [400, 600]
    assert (plan.left_out, plan.evicted) == ((), ())


def test_the_first_shards_that_fit_are_copied() -> None:
    plan = plan_copy(shards(400, 500, 500, 100), ROOM, [])
    assert [shard.name[6:12] for shard in plan.copied] == ["000000", "000001", "000003"]
    assert [shard.name[6:12] for shard in plan.left_out] == ["000002"]


def test_the_least_recently_used_goes_first_and_no_more_than_needed() -> None:
    others = [other("newest", 300, 9.0), other("oldest", 300, 1.0), other("middle", 300, 5.0)]
    assert plan_copy(shards(1500), ROOM, others).evicted == ("oldest", "middle")


def test_a_copy_in_use_stays_whatever_is_wanted() -> None:
    others = [other("used", 900, 1.0, in_use=True), other("idle", 100, 2.0)]
    plan = plan_copy(shards(1000, 500), ROOM, others)
    assert plan.evicted == ("idle",)
    assert [shard.num_bytes for shard in plan.left_out] == [500]


def test_the_cap_counts_all_copies_together() -> None:
    room = replace(ROOM, cap_bytes=700, present_bytes=100)
    plan = plan_copy(shards(200, 200, 200), room, [other("used", 200, 1.0, in_use=True)])
    assert [shard.num_bytes for shard in plan.copied] == [200, 200]


def test_a_disk_with_less_than_the_spare_room_takes_nothing() -> None:
    room = replace(ROOM, free_bytes=SPARE_BYTES - 1)
    plan = plan_copy(shards(1), room, [])
    assert (plan.copied, plan.room_bytes) == ((), -1)


COPIES = st.lists(
    st.builds(
        other, st.uuids().map(str), st.integers(0, 500), st.floats(0, 9), in_use=st.booleans()
    ),
    max_size=6,
)


@given(
    sizes=st.lists(st.integers(0, 300), max_size=8),
    free_bytes=st.integers(0, 2000),
    cap_bytes=st.none() | st.integers(1, 2000),
    present_bytes=st.integers(0, 300),
    others=COPIES,
)
def test_no_plan_takes_more_than_there_is_or_what_somebody_uses(
    sizes: list[int],
    free_bytes: int,
    cap_bytes: int | None,
    present_bytes: int,
    others: list[OtherCopy],
) -> None:
    room = DiskRoom(
        free_bytes=free_bytes + SPARE_BYTES, cap_bytes=cap_bytes, present_bytes=present_bytes
    )
    plan = plan_copy(shards(*sizes), room, others)
    by_name = {found.fingerprint: found for found in others}
    freed = sum(by_name[name].num_bytes for name in plan.evicted)
    assert not any(by_name[name].in_use for name in plan.evicted)
    assert sorted(s.name for s in (*plan.copied, *plan.left_out)) == [
        s.name for s in shards(*sizes)
    ]
    if plan.num_bytes:
        assert plan.num_bytes <= free_bytes + freed
        kept = sum(found.num_bytes for found in others) - freed
        assert cap_bytes is None or present_bytes + kept + plan.num_bytes <= cap_bytes
    idle = [found for found in others if not found.in_use]
    assert not plan.left_out or len(plan.evicted) == len(idle)
