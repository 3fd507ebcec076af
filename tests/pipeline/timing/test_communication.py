"""Communication that no computation covers, in the events of a profile."""

from __future__ import annotations

from pipeline.timing.communication import ProfiledWork, find_communication


def host(name, start_s, end_s):
    return ProfiledWork(name=name, start_s=start_s, end_s=end_s, is_kernel=False)


def kernel(name, start_s, end_s):
    return ProfiledWork(name=name, start_s=start_s, end_s=end_s, is_kernel=True)


def test_a_collective_is_exposed_where_nothing_is_computed():
    found = find_communication(
        [
            host("aten::mm", 0, 2),
            host("gloo:all_reduce", 1, 5),
            host("aten::mm", 4, 4.5),
            host("aten::add", 4.25, 6),
        ],
        has_device=False,
    )
    assert found.busy_s == 4
    assert found.exposed_s == 2  # from 2 to 4


def test_collectives_at_the_same_time_count_once():
    pieces = [host("gloo:all_reduce", 0, 3), host("gloo:all_gather", 1, 2)]
    found = find_communication(pieces, has_device=False)
    assert (found.busy_s, found.exposed_s) == (3, 3)


def test_ranges_that_only_wait_are_no_computation():
    pieces = [host("FSDP::pre_forward (0)", 0, 9), host("gloo:all_gather", 1, 4)]
    assert find_communication(pieces, has_device=False).exposed_s == 3


def test_on_a_gpu_kernels_count_and_the_host_does_not():
    pieces = [
        kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 4),
        kernel("ampere_sgemm_128x64_tn", 3, 6),
        host("aten::mm", 0, 3),
        host("gloo:all_reduce", 10, 11),
    ]
    found = find_communication(pieces, has_device=True)
    assert (found.busy_s, found.exposed_s) == (4, 3)


def test_without_a_collective_there_is_nothing():
    found = find_communication([host("aten::mm", 0, 1)], has_device=False)
    assert (found.busy_s, found.exposed_s) == (0, 0)
