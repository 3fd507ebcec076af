"""Counts what the host reads of values that would be on a GPU, where there is none.

On a CPU nothing tells a tensor of the device from one of the host. Here those of the device are
the ones that are declared to be, what is moved to a device, and whatever is computed from any of
them. A read is what has the host wait on a GPU: a value that becomes a Python object, a result
whose size depends on values, and an index that must first be copied to the device.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from typing_extensions import Self
from pipeline.models.hugging_face import HuggingFaceVLM
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.training_data.batches import ModelInputs, to_device
from tests.pipeline.models.conftest import Kind

_READS = {"_local_scalar_dense", "nonzero", "masked_select", "masked_scatter_backward",
          "unique_consecutive", "_unique2", "unique_dim", "equal"}  # fmt: skip
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
_FILLED = {"scatter"}
"""Operations whose first tensor autograd makes on the device of the others, in torch before 2.12
without naming them."""
_METHODS = {"tolist", "numpy", "cpu"}
_MOVES = {"_to_copy", "copy_"}
_MAKERS = {"tensor", "as_tensor", "asarray", "scalar_tensor"}

HOST = torch.device("cpu")
DEVICE = torch.device("cpu", 0)
"""Stands for a GPU: the same memory, by another name."""


class HostReads:
    """A context in which reads are counted, by the function of pipeline or transformers."""

    def __init__(self, on_device: Iterable[torch.Tensor]) -> None:
        self.by_place: Counter[str] = Counter()
        self.mixed: Counter[str] = Counter()
        """Operations on tensors of both: on a GPU they raise."""
        self.copied: Counter[str] = Counter()
        """Values of Python that are copied to the device: the host waits for that, too."""
        self._held: list[torch.UntypedStorage] = []  # kept, so that no address is used twice
        self._addresses: set[int] = set()
        self._modes = (_Methods(self), _Operations(self))
        for tensor in on_device:
            self.declare(tensor)

    @property
    def number(self) -> int:
        return self.by_place.total()

    def __enter__(self) -> Self:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*details)

    def backward(self, loss: torch.Tensor) -> None:
        """As `Tensor.backward`, in which layers that are computed again would not be seen."""
        seed = torch.ones_like(loss)
        torch.autograd.Variable._execution_engine.run_backward(
            (loss,), (seed,), False, False, (), allow_unreachable=True, accumulate_grad=True
        )

    def declare(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() and storage.data_ptr() not in self._addresses:
            self._held.append(storage)
            self._addresses.add(storage.data_ptr())

    def has(self, tensor: Any) -> bool:
        return (
            isinstance(tensor, torch.Tensor)
            and tensor.untyped_storage().data_ptr() in self._addresses
        )

    def count(self, what: str) -> None:
        self.by_place[f"{_place()}: {what}"] += 1


class _Methods(TorchFunctionMode):
    """Sees what never becomes an operation, and tells on which of the two devices a tensor is."""

    def __init__(self, reads: HostReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if func == torch.Tensor.device.__get__:
            return DEVICE if self._reads.has(args[0]) else HOST
        if name in _METHODS and self._reads.has(args[0]):
            self._reads.count(name)
        if name in _MAKERS and _is_device(kwargs.get("device")):
            self._reads.copied[f"{_place()}: {name}"] += 1
        found = func(*args, **kwargs)
        moved = args[1:2] if name == "to" else ()
        if any(_is_device(value) for value in (*moved, kwargs.get("device"))):
            self._reads.declare(found)
        return found


class _Operations(TorchDispatchMode):
    """Sees all operations, those of the backward pass among them."""

    def __init__(self, reads: HostReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads, name = self._reads, func.overloadpacket.__name__
        is_there = any(reads.has(value) for value in tree_leaves((args, kwargs)))
        if is_there and self._waits(name, args, kwargs or {}):
            reads.count(name)
        if is_there and name not in _MOVES | _INDEXED:
            judged = args[1:] if name in _FILLED else args
            values = [v for v in tree_leaves((judged, kwargs)) if isinstance(v, torch.Tensor)]
            if any(value.ndim and value.numel() and not reads.has(value) for value in values):
                reads.mixed[f"{_place()}: {name}"] += 1
        found = func(*args, **(kwargs or {}))
        for value in tree_leaves(found):
            if is_there and isinstance(value, torch.Tensor):
                reads.declare(value)
        return found

    def _waits(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        if name == "repeat_interleave":
            return kwargs.get("output_size") is None
        if name in _INDEXED:
            indices = [index for index in args[1] if index is not None]
            return any(i.dtype == torch.bool or not self._reads.has(i) for i in indices)
        return name in _READS


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) and value == DEVICE


def _place() -> str:
    """The innermost function of pipeline or of a model of transformers that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if not {"pipeline", "transformers"}.isdisjoint(path.parts) and "tests" not in path.parts:
            return f"{path.stem}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return "backward"


PLACE = RankDevice(device=DEVICE, precision="fp32", num_compute_threads=1)


def inputs_of(
    kind: Kind, model: HuggingFaceVLM, *, pictures: bool, packed: bool = True
) -> ModelInputs:
    """Two samples a row, or one; the one without a picture is the third."""
    samples = kind.samples()
    rows = [samples[:2], samples[2:]] if pictures else [[samples[2], samples[2]]]
    if not packed:
        rows = [[sample] for row in rows for sample in row]
    return to_device(kind.batch(model, rows), PLACE, model.layout)
