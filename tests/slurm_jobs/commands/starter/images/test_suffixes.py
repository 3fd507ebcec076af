"""Suffixes of images agree with the formats that `preprocess` opens."""

from pipeline.preprocess.images.image_formats import FORMATS
from slurm_jobs.commands.starter.images.suffixes import IMAGE_SUFFIXES


def test_every_suffix_of_a_format_that_is_opened_is_taken() -> None:
    from PIL import Image

    Image.init()
    registered = Image.registered_extensions().items()
    opened = {suffix for suffix, kind in registered if kind in FORMATS}
    closed = {suffix for suffix, kind in registered if kind not in {*FORMATS, "MPO"}}
    assert opened - IMAGE_SUFFIXES == set()
    assert IMAGE_SUFFIXES & closed == set()
