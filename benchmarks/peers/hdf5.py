"""HDF5 with h5py: variable-length bytes, or one chunk per image; opened in each worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.job import ARRAYS, DECODED, Job, Pass, Source, decode
from benchmarks.peers.loading import loader_pass

NAME = "HDF5"
NEEDS = "h5py"
PACKAGE = "h5py"


def build(source: Source, folder: Path) -> None:
    """Write all samples into one HDF5 data set."""
    import h5py

    num_samples = len(source.lengths)
    with h5py.File(folder / "set.h5", "w") as file:
        if source.kind == ARRAYS:
            shape = (num_samples, *source.shape)
            images = file.create_dataset("image", shape, "uint8", chunks=(1, *source.shape))
        else:
            images = file.create_dataset("image", (num_samples,), h5py.vlen_dtype("uint8"))
        for number, data in enumerate(source.samples()):
            pixels = np.frombuffer(data, np.uint8)
            images[number] = pixels.reshape(source.shape) if source.kind == ARRAYS else pixels


class _Images:
    def __init__(self, path: Path, kind: str) -> None:
        import h5py

        self._path, self._kind = path, kind
        self._images: Any = None
        with h5py.File(path) as file:
            self._length = len(file["image"])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        import h5py

        if self._images is None:
            self._images = h5py.File(self._path)["image"]
        image = self._images[number]
        if self._kind == DECODED:
            return decode(image.tobytes())
        return image if self._kind == ARRAYS else image.tobytes()


def open_pass(folder: Path, job: Job) -> Pass:
    """See `Peer`."""
    return loader_pass(_Images(folder / "set.h5", job.kind), job)
