"""What is assumed of image processors' classes, against those that are installed."""

from __future__ import annotations

import pytest

from slurm_jobs.formats.processors.builders import BUILDERS
from slurm_jobs.formats.processors.class_defaults import CLASS_DEFAULTS, NEUTRAL_KEYS


@pytest.mark.parametrize("name", sorted(CLASS_DEFAULTS))
def test_defaults_are_those_of_the_installed_class(name: str) -> None:
    import transformers

    installed = getattr(transformers, f"{name}Pil")
    found = {key: getattr(installed, key) for key in CLASS_DEFAULTS[name]}
    channels = {key: tuple(found[key]) for key in ("image_mean", "image_std")}
    assert CLASS_DEFAULTS[name] == found | channels


@pytest.mark.parametrize("name", sorted(CLASS_DEFAULTS))
def test_every_key_of_the_installed_class_is_read_refused_or_neutral(
    name: str,
) -> None:
    """A key that a later version adds fails this, so that somebody looks at what it does."""
    import transformers

    known = {*CLASS_DEFAULTS[name], *NEUTRAL_KEYS, *BUILDERS[name].more_keys}
    refused = {"do_pad", "pad_size", "do_center_crop", "crop_size"} - known
    keys = set(getattr(transformers, f"{name}Pil").valid_kwargs.__annotations__)
    assert keys <= known | refused


def test_every_class_has_a_builder() -> None:
    assert BUILDERS.keys() == CLASS_DEFAULTS.keys()
