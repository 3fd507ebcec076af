"""Synthetic images with the spectrum of photographs, made from a seed.

Photographs can be neither downloaded nor shipped here. The images follow eight that scikit-image
and scikit-learn ship (astronaut, chelsea, coffee, motorcycle, rocket, camera, china, flower). In
those, the amplitude falls with spatial frequency to the power of -0.96 to -1.51, the standard
deviation of luminance is 31 to 76, that of the colour differences 6 to 32, and a JPEG of quality
90, 4:2:0, takes 1.4 to 2.9 bits per pixel (mean 2.1). Field (1987, JOSA A 4) found amplitudes of
about 1/f in natural images. The steps are:

- Luminance and two colour differences are noise of random phase. The amplitude falls as f ** -1.3
  times a Gaussian that leaves a quarter at the highest frequency, as lenses do.
- Red, green and blue are mixed from these, so that they are correlated.
- Forty ellipses and polygons of other colours add edges, which noise of random phase lacks. Their
  sizes follow a power law; they are drawn at twice the size and averaged down.
- The image is saved as cameras do: JPEG, quality 90, 4:2:0. That gives 2.0 bits per pixel, 245 KB
  per megapixel.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw

SLOPE = 1.3
LENS_AT_NYQUIST = 0.25
LUMINANCE_SD = 38.0
COLOUR_SD = 10.0
NUM_SHAPES = 40


def make_photograph(seed: int, width: int, height: int) -> Image.Image:
    """Make one RGB image; the same arguments give the same image."""
    rng = np.random.default_rng(seed)
    luminance = LUMINANCE_SD * _field(rng, width, height)
    blue = COLOUR_SD * _field(rng, width, height)
    red = COLOUR_SD * _field(rng, width, height)
    noise = np.stack([luminance + red, luminance - (red + blue) / 2, luminance + blue], axis=-1)
    shapes = np.asarray(_shapes(rng, width, height), np.float64) - 128
    return Image.fromarray(np.clip(np.rint(noise + shapes + 118), 0, 255).astype(np.uint8))


def as_jpeg(picture: Image.Image, quality: int = 90) -> bytes:
    """Encode as cameras do, with colours at half the resolution (4:2:0)."""
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=quality, subsampling=2)
    return stream.getvalue()


def _field(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Return noise with photographs' amplitudes: float64 [height, width], unit variance."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1.0
    amplitude = frequency**-SLOPE * LENS_AT_NYQUIST ** ((frequency / 0.5) ** 2)
    amplitude[0, 0] = 0.0
    phase = np.exp(2j * np.pi * rng.random(frequency.shape))
    values: np.ndarray = np.fft.irfft2(amplitude * phase, s=(height, width))
    return values / values.std()


def _shapes(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Draw ellipses and polygons on grey, with edges as smooth as a sensor's."""
    canvas = Image.new("RGB", (2 * width, 2 * height), (128, 128, 128))
    draw = ImageDraw.Draw(canvas)
    shorter = min(width, height)
    for _ in range(NUM_SHAPES):
        radius = min(0.04 * shorter * (rng.pareto(1.5) + 1), shorter)
        x, y = rng.uniform(0, 2 * width), rng.uniform(0, 2 * height)
        grey = 128 + rng.normal(0, 35)
        colour = tuple(int(np.clip(grey + rng.normal(0, 15), 0, 255)) for _ in range(3))
        if rng.random() < 0.5:
            box = (x - radius, y - 0.7 * radius, x + radius, y + 0.7 * radius)
            draw.ellipse(box, fill=colour)
        else:
            angles = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(3, 6)))
            corners = [(x + radius * np.cos(a), y + radius * np.sin(a)) for a in angles]
            draw.polygon(corners, fill=colour)
    return canvas.resize((width, height), Image.Resampling.BOX)
