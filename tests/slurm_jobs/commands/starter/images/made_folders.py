"""Folders of images, and the manifest that `init` writes of them."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.commands.starter.images.image_folder import read_image_folder

JPEG = b"\xff\xd8\xff\xe0"
"""First bytes of a picture, by which files are known as one."""


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEG)


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def rows(folder: Path) -> dict[str, str]:
    train = read_image_folder(folder).train
    names = [file.relative_to(folder).as_posix() for file in train.files]
    return dict(zip(names, train.words, strict=True))


def notes(folder: Path) -> str:
    return "\n".join(read_image_folder(folder).notes)
