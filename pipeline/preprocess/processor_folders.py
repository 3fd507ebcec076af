"""Checksum of a processor folder, and processor folders that a stage writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import xxhash

from slurm_jobs.base.errors import StageDataError
from slurm_jobs.base.files import dump_json, make_private_dir, write_bytes_atomic
from slurm_jobs.formats.configs.stages import ImagePixels
from slurm_jobs.formats.processors.folder import check_folder, find_images, read_folder_json
from slurm_jobs.formats.processors.pixel_limits import PixelLimitsError, with_image_pixels
from slurm_jobs.formats.processors.processor_files import processor_files


def hash_folder(folder: Path) -> str:
    """Return xxh3-128 over the names and bytes of a folder's files, in hexadecimal."""
    digest = xxhash.xxh3_128()
    for path in processor_files(folder):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def write_folder(files: Mapping[str, bytes], root: Path) -> Path:
    """Write a processor folder below `root`, named by its content, and return it.

    Array tasks that write it at the same time write the same bytes.
    """
    digest = xxhash.xxh3_64()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    folder = root / digest.hexdigest()
    make_private_dir(folder)
    for name, data in files.items():
        write_bytes_atomic(folder / name, data)
    return folder


def write_with_pixels(source: Path, pixels: ImagePixels, root: Path) -> Path:
    """Write a copy of a processor folder with the user's limits on resized images.

    Every file with an image processor gets them, so that all readers of the copy agree.

    Raises:
        StageConfigError: the processor has no such limits, or they leave no size for an image.
    """
    check_folder(source)
    processor_file, own_file = (
        source / name for name in ("processor_config.json", "preprocessor_config.json")
    )
    processor = read_folder_json(processor_file)
    _, images_file = find_images(processor, processor_file)
    files = {path.name: path.read_bytes() for path in processor_files(source)}
    try:
        if processor.get("image_processor"):
            images = with_image_pixels(processor["image_processor"], pixels)
            whole = {**processor, "image_processor": images}
            files[processor_file.name] = dump_json(whole).encode()
        if values := read_folder_json(own_file):
            files[own_file.name] = dump_json(with_image_pixels(values, pixels)).encode()
    except PixelLimitsError as error:
        message = f"{images_file}: {error}"
        raise StageDataError(message) from error
    return write_folder(files, root)
