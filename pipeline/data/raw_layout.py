"""Where the arrays of a sample with raw images lie, told from its sizes alone.

Tar headers are written for other readers. Ours knows from the index how many
tokens and images a sample has, and how large the images are; so it may take
the arrays from their places at once, a fifth of the time that the headers cost.
That the places are right is looked at when a sample is first read.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from pipeline.data.sample_format import Sample, StoredMeta, view_npy
from pipeline.data.tar import BLOCK, padded

_NPY_HEADER_BYTES = 128
"""Of an array with few dimensions, as NumPy pads it."""
_TOKEN = np.dtype("<i4")
_TOKENS_START = BLOCK + _NPY_HEADER_BYTES
"""Tokens are the first member (`pack_sample`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawLayout:
    """Of samples whose images are raw and all of one shape."""

    image_shape: tuple[int, int, int]
    image_bytes: int
    image_header: bytes
    """What an image's `.npy` begins with."""
    image_stride: int
    """Bytes from one image to the next; the last one ends with the sample."""

    def fits(self, buffer: memoryview, num_tokens: int, num_images: int) -> bool:
        """Whether the members of the sample in `buffer` lie as `unpack` takes them."""
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

    def arrays(
        self, buffer: memoryview, num_tokens: int, num_images: int
    ) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Views of the input ids, the labels and each image's bytes, of a buffer that `fits`."""
        tokens = np.frombuffer(buffer, _TOKEN, 2 * num_tokens, _TOKENS_START)
        size, stride = len(buffer), self.image_stride
        first = size - num_images * stride + BLOCK + _NPY_HEADER_BYTES
        images = [
            np.frombuffer(buffer, np.uint8, self.image_bytes, start)
            for start in range(first, size, stride)
        ]
        return tokens[:num_tokens], tokens[num_tokens:], images

    def unpack(self, buffer: memoryview, *, key: str, num_tokens: int, num_images: int) -> Sample:
        """What `unpack_sample` gives of a buffer that `fits`."""
        input_ids, labels, images = self.arrays(buffer, num_tokens, num_images)
        meta_start = BLOCK + padded(_NPY_HEADER_BYTES + 8 * num_tokens)
        return Sample(
            key=key,
            input_ids=input_ids,
            labels=labels,
            images=tuple(image.reshape(self.image_shape) for image in images),
            meta=StoredMeta(buffer[meta_start : len(buffer) - num_images * self.image_stride]),
        )


def raw_layout(image_shape: tuple[int, int, int]) -> RawLayout | None:
    """The layout of samples with raw images of this shape; None if NumPy writes them otherwise."""
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": image_shape}
    np.lib.format.write_array_header_1_0(stream, header)
    if stream.tell() != _NPY_HEADER_BYTES:
        return None
    image_bytes = int(np.prod(image_shape))
    return RawLayout(
        image_shape=image_shape,
        image_bytes=image_bytes,
        image_header=stream.getvalue(),
        image_stride=BLOCK + padded(_NPY_HEADER_BYTES + image_bytes),
    )
