"""Seeded permutation that is computed entry by entry, without a table.

A shuffled order of a billion samples as an array takes 8 GB and tens of seconds in every
process. Here any entry costs some hundred nanoseconds and no memory. So a reader may start
anywhere at once, and array tasks may each compute their stretch.

The bijection is a Feistel network (Luby and Rackoff, SIAM J. Comput. 17, 1988) over the
smallest power of two that holds all numbers. Results beyond the end are mapped again until they
are in range ("cycle walking", Black and Rogaway, CT-RSA 2002), on average less than once.
Rounds are mixed by MurmurHash3's 64-bit finaliser with keys from NumPy's SeedSequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NUM_ROUNDS = 8
_MULTIPLIERS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)


@dataclass(frozen=True, kw_only=True, slots=True)
class Permutation:
    """Bijection of 0 ... `size` - 1; created by `make_permutation`."""

    size: int
    num_low_bits: int
    """Width of the half that even rounds change."""
    num_high_bits: int
    keys: np.ndarray
    """uint64 [rounds]."""

    def __len__(self) -> int:
        return self.size

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the entries at these positions, int64 of the shape of `places`.

        Args:
            places: Integers from 0 up to `size` - 1.
        """
        values = np.asarray(places).astype(np.uint64).ravel()
        assert not len(values) or int(values.max()) < self.size
        encrypted = self._encrypt(values)
        outside = np.flatnonzero(encrypted >= np.uint64(self.size))
        while len(outside):
            walked = self._encrypt(encrypted[outside])
            encrypted[outside] = walked
            outside = outside[walked >= np.uint64(self.size)]
        return encrypted.astype(np.int64).reshape(np.shape(places))

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the entries `start` up to `stop`, int64 [stop - start]."""
        return self.at(np.arange(start, stop, dtype=np.int64))

    def _encrypt(self, values: np.ndarray) -> np.ndarray:
        num_low = np.uint64(self.num_low_bits)
        low_mask = np.uint64((1 << self.num_low_bits) - 1)
        high_mask = np.uint64((1 << self.num_high_bits) - 1)
        low, high = values & low_mask, values >> num_low
        for number, key in enumerate(self.keys):
            if number % 2:
                high = high ^ (_mix(low, key) & high_mask)
            else:
                low = low ^ (_mix(high, key) & low_mask)
        return (high << num_low) | low


def make_permutation(size: int, words: Sequence[int]) -> Permutation:
    """Return the permutation of `size` numbers that `words` seed; equal words give equal results.

    Args:
        size: Count of numbers, at least 1.
        words: Integers of 0 or more, such as seed and epoch. Their order matters.
    """
    assert size >= 1
    num_bits = max(2, (size - 1).bit_length())
    num_low_bits = num_bits // 2
    return Permutation(
        size=size,
        num_low_bits=num_low_bits,
        num_high_bits=num_bits - num_low_bits,
        keys=np.random.SeedSequence(list(words)).generate_state(_NUM_ROUNDS, np.uint64),
    )


def _mix(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """Mix `values` plus a key with MurmurHash3's finaliser; uint64 that wraps around."""
    mixed = values + key
    for multiplier in _MULTIPLIERS:
        mixed ^= mixed >> _SHIFT
        mixed *= multiplier
    mixed ^= mixed >> _SHIFT
    return mixed
