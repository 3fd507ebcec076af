"""Layout of the arrays of a sample with raw images, computed from its sizes alone.

Tar headers are for other readers. This one knows from the index how many tokens and images a
sample has, and how large the images are. So it takes the arrays from their offsets directly, in
a fifth of the time that parsing the headers takes. The first read of a sample verifies the
offsets.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pipeline.data.disk_format.sample_members import Sample, StoredMeta, view_npy
from pipeline.data.disk_format.tar_format import BLOCK, padded

_NPY_HEADER_BYTES = 128
"""Size of the header of an array with few dimensions, as NumPy pads it."""


_TOKEN = np.dtype("<i4")


_TOKENS_START = BLOCK + _NPY_HEADER_BYTES
"""Tokens are the first member (`pack_sample`)."""


Place: TypeAlias = tuple[int, int, int, int]
"""Offset of a sample (a multiple of 512), its bytes, tokens and images."""


Arrays: TypeAlias = tuple[np.ndarray, np.ndarray, list[np.ndarray], list[tuple[int, int]]]
"""Input ids and labels of a sample, int32 [num_tokens], the bytes of each image, uint8, and its
height and width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawLayout:
    """Layout of samples whose images are raw and all of one shape."""

    image_shape: tuple[int, int, int]
    image_size: tuple[int, int]
    image_bytes: int
    image_header: bytes
    """Header of an image's `.npy`."""
    image_stride: int
    """Bytes from one image to the next; the last image ends with the sample."""

    def fits(self, buffer: memoryview, num_tokens: int, num_images: int) -> bool:
        """Check if the members of the sample in `buffer` have the offsets that `unpack` uses."""
        first_image = len(buffer) - num_images * self.image_stride
        if first_image < _TOKENS_START + 8 * num_tokens:
            return False
        try:
            tokens = view_npy(buffer[BLOCK : _TOKENS_START + 8 * num_tokens])
        except ValueError:
            return False
        return (tokens.dtype, tokens.shape) == (_TOKEN, (2, num_tokens)) and all(
            buffer[start + BLOCK : start + BLOCK + _NPY_HEADER_BYTES] == self.image_header
            for start in range(first_image, len(buffer), self.image_stride)
        )

    def arrays(self, data: np.ndarray, words: np.ndarray, place: Place) -> Arrays:
        """Return the arrays of a sample that `fits`; all but the sizes are views.

        `data` is uint8 and `words` the same memory as int32.
        """
        start, num_bytes, num_tokens, num_images = place
        first = (start + _TOKENS_START) // _TOKEN.itemsize
        middle = first + num_tokens
        end = start + num_bytes
        from_image, size = BLOCK + _NPY_HEADER_BYTES, self.image_bytes
        images = [
            data[image + from_image : image + from_image + size]
            for image in range(end - num_images * self.image_stride, end, self.image_stride)
        ]
        sizes = [self.image_size] * num_images
        return words[first:middle], words[middle : middle + num_tokens], images, sizes

    def unpack(self, buffer: memoryview, *, key: str, num_tokens: int, num_images: int) -> Sample:
        """Return what `unpack_sample` returns, for a buffer that `fits`."""
        data = np.frombuffer(buffer, dtype=np.uint8)
        words = data.view(_TOKEN)
        place = 0, len(data), num_tokens, num_images
        input_ids, labels, images, _ = self.arrays(data, words, place)
        meta_start = BLOCK + padded(_NPY_HEADER_BYTES + 8 * num_tokens)
        return Sample(
            key=key,
            input_ids=input_ids,
            labels=labels,
            images=tuple(image.reshape(self.image_shape) for image in images),
            meta=StoredMeta(buffer[meta_start : len(buffer) - num_images * self.image_stride]),
        )


def raw_layout(image_shape: tuple[int, int, int]) -> RawLayout | None:
    """Return the layout for raw images of this shape; None if NumPy writes them differently."""
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": image_shape}
    np.lib.format.write_array_header_1_0(stream, header)
    if stream.tell() != _NPY_HEADER_BYTES:
        return None
    image_bytes = int(np.prod(image_shape))
    return RawLayout(
        image_shape=image_shape,
        image_size=image_shape[:2],
        image_bytes=image_bytes,
        image_header=stream.getvalue(),
        image_stride=BLOCK + padded(_NPY_HEADER_BYTES + image_bytes),
    )
