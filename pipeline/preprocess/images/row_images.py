"""Images of a row: read, planned by their sizes, then decoded and processed as planned.

Planning decodes nothing, so a row that is too long costs no decoding; its pixels follow from
the plan. May run in many threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image

from pipeline.preprocess.images.decode import decode_upright, open_image, read_upright_size
from pipeline.preprocess.images.image_sources import ImageSource
from pipeline.preprocess.images.load_pixels import load_pixels
from pipeline.preprocess.images.resize import Resize
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.configs.stages import DEFAULT_IMAGE_DECODING, ImageDecoding
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.processors.folder import ProcessorInfo
from slurm_jobs.formats.processors.image_plans import Colour, ImagePlan, Size, UnfitImageError


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedImage:
    """Image of a row that is not decoded yet."""

    name: str
    """Its name in the manifest."""
    data: bytes
    """Content of the file."""
    size: Size
    """Width and height of the upright image."""
    plan: ImagePlan


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedImages:
    """Image side of a sample."""

    images: tuple[np.ndarray, ...]
    """uint8 [height, width, 3] each: stored arrays of all images of the row, in their order."""
    original_sizes: tuple[Size, ...]
    """(width, height) of each image of the row, upright."""
    stored_sizes: tuple[tuple[Size, ...], ...]
    """(width, height) of each stored array of each image of the row."""

    @property
    def num_pixels(self) -> int:
        """Pixels of all arrays."""
        return sum(image.shape[0] * image.shape[1] for image in self.images)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowImages:
    """Reads images of manifest rows and processes them as a processor would."""

    processor: ProcessorInfo
    source: ImageSource
    max_pixels: int
    decoding: ImageDecoding = DEFAULT_IMAGE_DECODING
    listed_sources: Sequence[ImageSource] = ()
    """Sources by the number of a row's manifest, for rows that are from one of a list."""

    def plan(self, row: ManifestRow) -> tuple[PlannedImage, ...]:
        """Plan the row's images from their files' headers.

        Raises:
            SampleRejectedError: an image cannot be used; the error has the reason.
            StageConfigError: an image is in a broken archive.
            StageError: the file system failed.
            MemoryError: naming row and image.
        """
        planned = []
        listed = row.origin.listed
        source = self.source if listed is None else self.listed_sources[listed.number]
        for image in row.images:
            name = image.value
            with _naming_what_lacks_memory(row, name):
                try:
                    data = source.read(image)
                except OSError as error:
                    message = f"{row.origin}: an image cannot be read: {error}"
                    raise StageError(message) from error
                size = read_upright_size(data, max_pixels=self.max_pixels, name=name)
            stated = f"{name}: {size[0]} x {size[1]} pixels"
            try:
                plan = self.processor.images.plan(size, num_images=len(row.images))
            except UnfitImageError as error:
                message = f"{stated}: {error}"
                raise SampleRejectedError(reason="unfit_size", message=message) from error
            self._check_padding(plan, size, stated)
            # so thin that it would be huge before it is cropped
            resizes = (resized for recipe in plan.recipes for resized in recipe.resizes)
            width, height = max(resizes, key=math.prod)
            if width * height > max(self.max_pixels, plan.num_pixels):
                message = (
                    f"{stated}, resized to {width} x {height} before the middle is cut out; "
                    f"max_pixels is {self.max_pixels}"
                )
                raise SampleRejectedError(reason="too_many_pixels", message=message)
            planned.append(PlannedImage(name=name, data=data, size=size, plan=plan))
        return tuple(planned)

    def _check_padding(self, plan: ImagePlan, size: Size, stated: str) -> None:
        """Refuse an image so thin that it would be huge as a square."""
        if not _pads(plan) or max(size) ** 2 <= max(self.max_pixels, plan.num_pixels):
            return
        message = f"{stated}, padded to {max(size)} x {max(size)}; max_pixels is {self.max_pixels}"
        raise SampleRejectedError(reason="too_many_pixels", message=message)

    def make(self, row: ManifestRow, planned: tuple[PlannedImage, ...]) -> EncodedImages:
        """Decode and process the row's images as planned.

        Raises:
            SampleRejectedError: an image cannot be used; the error has the reason.
            MemoryError: naming row and image.
        """
        images: list[np.ndarray] = []
        for image in planned:
            with _naming_what_lacks_memory(row, image.name):
                images += self._make_image(image)
        return EncodedImages(
            images=tuple(images),
            original_sizes=tuple(image.size for image in planned),
            stored_sizes=tuple(
                tuple(recipe.size for recipe in image.plan.recipes) for image in planned
            ),
        )

    def _make_image(self, planned: PlannedImage) -> list[np.ndarray]:
        first_sizes = {recipe.resizes[:1] for recipe in planned.plan.recipes}
        begun: dict[tuple[Size, ...], Image.Image]
        if self.decoding == "exact" or () in first_sizes or _pads(planned.plan):
            opened = open_image(planned.data, max_pixels=self.max_pixels, name=planned.name)
            upright = decode_upright(opened, planned.name)
            _check_decoded(planned, upright.size)
            begun = {(): upright}
        else:
            begun = {size: self._load(planned, *size) for size in first_sizes}
        return carry_out(planned.plan, begun, resample=self.processor.resample)

    def _load(self, planned: PlannedImage, size: Size) -> Image.Image:
        """Decode an image for a target size, no larger than needed."""

        def target(width: int, height: int) -> Resize:
            _check_decoded(planned, (width, height))
            return Resize(width=size[0], height=size[1], resample=self.processor.resample)

        pixels = load_pixels(
            planned.data,
            target=target,
            decoding=self.decoding,
            max_pixels=self.max_pixels,
            name=planned.name,
        )
        return Image.fromarray(pixels)


def _check_decoded(planned: PlannedImage, size: Size) -> None:
    """Refuse an image whose decoded size differs from the one that was planned."""
    if size != planned.size:
        (width, height), (found_width, found_height) = planned.size, size
        message = (
            f"{planned.name}: states {width} x {height} pixels, but decodes to "
            f"{found_width} x {found_height}"
        )
        raise SampleRejectedError(reason="corrupt_image", message=message)


def _pads(plan: ImagePlan) -> bool:
    """Check whether a plan begins with the image itself, padded to a square."""
    return any(recipe.square is not None for recipe in plan.recipes)


def carry_out(
    plan: ImagePlan, begun: Mapping[tuple[Size, ...], Image.Image], *, resample: int
) -> list[np.ndarray]:
    """Return the arrays of a plan for an image: uint8 [height, width, 3] each.

    `begun` has the upright RGB image after some resizes, keyed by them: after none (`()`), or
    after the first ones of all recipes. To pad the image, it must have the one after none.
    """
    by_colour: dict[Colour | None, dict[tuple[Size, ...], Image.Image]] = {None: dict(begun)}
    arrays = []
    for recipe in plan.recipes:
        if recipe.square is not None and recipe.square not in by_colour:
            by_colour[recipe.square] = {(): pad_to_square(begun[()], recipe.square)}
        resized = by_colour[recipe.square]
        for num_done, size in enumerate(recipe.resizes):
            before, after = recipe.resizes[:num_done], recipe.resizes[: num_done + 1]
            if after not in resized:  # all tiles come from the same image
                resized[after] = resized[before].resize(size, Image.Resampling(resample))
        whole = resized[recipe.resizes]
        arrays.append(np.asarray(whole if recipe.box is None else whole.crop(recipe.box)))
    return arrays


def pad_to_square(image: Image.Image, colour: Colour) -> Image.Image:
    """Return an RGB image in the middle of a square of its longer side."""
    side = max(image.size)
    square = Image.new("RGB", (side, side), colour)
    square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return square


@contextmanager
def _naming_what_lacks_memory(row: ManifestRow, name: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        message = f"{row.origin}: {name}: not enough memory to decode and resize it"
        raise MemoryError(message) from error
