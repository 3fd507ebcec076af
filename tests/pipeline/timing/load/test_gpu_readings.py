"""GPUs read through a fake driver with pynvml's names."""

# ruff: noqa: N802 - the names are those of pynvml

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from pipeline.timing.load.gpu_readings import choose_gpus, open_gpus

UUIDS = ("GPU-aaaa-1", "GPU-bbbb-2", "GPU-bbcc-3")


class NVMLError(Exception):
    """As in pynvml."""


class FakeNvml:
    """As many GPUs as there are UUIDs; `mute` names the functions that fail.

    `denied` are the indices without permission; `lost` the UUIDs that cannot be opened.
    """

    NVMLError = NVMLError

    def __init__(self, uuids=UUIDS, mute=(), denied=(), lost=()):
        self.uuids, self.mute, self.is_open = uuids, set(mute), False
        self.denied, self.lost = denied, lost

    def _say(self, function, value):
        if function in self.mute:
            raise NVMLError("Not Supported")
        return value

    def nvmlInit(self):
        self.is_open = self._say("nvmlInit", True)

    def nvmlShutdown(self):
        self.is_open = False

    def nvmlDeviceGetCount(self):
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index):
        if index in self.denied:
            raise NVMLError("Insufficient Permissions")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in self.uuids or uuid in self.lost:
            raise NVMLError("Not Found")
        return self.uuids.index(uuid)

    def nvmlDeviceGetUUID(self, handle):
        return self.uuids[handle]

    def nvmlDeviceGetName(self, handle):
        return "Tesla V100"

    def nvmlDeviceGetMemoryInfo(self, handle):
        info = SimpleNamespace(total=16e9, used=1e9 * (handle + 1))
        return self._say("nvmlDeviceGetMemoryInfo", info)

    def nvmlDeviceGetUtilizationRates(self, handle):
        rates = SimpleNamespace(gpu=10 * handle, memory=handle)
        return self._say("nvmlDeviceGetUtilizationRates", rates)

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._say("nvmlDeviceGetPowerUsage", 250_500)


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, UUIDS),
        ("0,2", ("GPU-aaaa-1", "GPU-bbcc-3")),
        ("2, 0", ("GPU-bbcc-3", "GPU-aaaa-1")),
        ("GPU-bbcc", ("GPU-bbcc-3",)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1,7,0", ("GPU-bbbb-2",)),  # CUDA stops at the first that is not there
        ("1,1", ("GPU-bbbb-2",)),
        ("MIG-xy", ("MIG-xy",)),
    ],
)
def test_the_chosen_gpus_are_those_that_cuda_would_show(visible, chosen):
    assert tuple(choose_gpus(visible, UUIDS)) == chosen


def test_no_more_than_sixteen_are_read():
    assert len(choose_gpus(None, [f"GPU-{i}" for i in range(20)])) == 16


def opened(nvml, visible="1,2", **options):
    return open_gpus(visible, load=lambda: nvml, **options)


@pytest.fixture
def driver(tmp_path):
    path = tmp_path / "version"
    path.touch()
    return path


def test_values_are_in_the_order_of_the_facts_and_in_the_named_units(driver):
    nvml = FakeNvml()
    source = opened(nvml, driver=driver)
    assert [fact["uuid"] for fact in source.facts] == ["GPU-bbbb-2", "GPU-bbcc-3"]
    assert source.facts[0]["memory_bytes"] == 16e9
    assert source.read_all() == {
        "gpu_busy_share": [0.1, 0.2],
        "gpu_memory_busy_share": [0.01, 0.02],
        "gpu_memory_used_bytes": [2e9, 3e9],
        "gpu_power_w": [250.5, 250.5],
    }
    source.close()
    assert not nvml.is_open


def test_a_reading_that_a_gpu_lacks_is_nan_and_reported_once(driver, caplog):
    source = opened(FakeNvml(mute=["nvmlDeviceGetPowerUsage"]), driver=driver)
    for _ in range(3):
        values = source.read_all()
    assert all(math.isnan(power) for power in values["gpu_power_w"])
    assert values["gpu_busy_share"] == [0.1, 0.2]
    assert [record.message for record in caplog.records] == [
        "system readings: a GPU does not answer nvmlDeviceGetPowerUsage: Not Supported"
    ]


def test_without_a_driver_nothing_is_imported_and_nothing_reported(tmp_path, caplog):
    assert opened(None, driver=tmp_path / "none") is None
    assert not caplog.records


def test_a_missing_package_is_reported_with_the_remedy(driver, caplog):
    def load():
        raise ModuleNotFoundError("No module named 'pynvml'")

    assert open_gpus(None, load=load, driver=driver) is None
    assert "pip install nvidia-ml-py" in caplog.text


def test_a_driver_that_fails_is_reported(driver, caplog):
    assert opened(FakeNvml(mute=["nvmlInit"]), driver=driver) is None
    assert "Not Supported" in caplog.text


def test_a_job_without_gpus_on_a_node_that_has_some_reads_none_of_them(driver):
    nvml = FakeNvml()
    assert opened(nvml, visible="", driver=driver) is None
    assert not nvml.is_open


def test_a_gpu_without_permission_is_skipped_and_the_others_are_read(driver):
    # Slurm's cgroup denies the first GPU of the node, and CUDA counts from the second.
    source = opened(FakeNvml(denied=[0]), visible="0,1", driver=driver)
    assert [fact["uuid"] for fact in source.facts] == ["GPU-bbbb-2", "GPU-bbcc-3"]
    assert source.read_all()["gpu_busy_share"] == [0.1, 0.2]


def test_a_gpu_that_cannot_be_opened_is_left_out_with_a_warning(driver, caplog):
    source = opened(FakeNvml(lost=["GPU-bbbb-2"]), driver=driver)
    assert [fact["uuid"] for fact in source.facts] == ["GPU-bbcc-3"]
    assert source.read_all()["gpu_busy_share"] == [0.2]
    assert "lack the GPU GPU-bbbb-2: NVML says: Not Found" in caplog.text
