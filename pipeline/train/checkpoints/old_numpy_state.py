"""NumPy's generator state as older checkpoints have it: a pickled array.

A pickled array may be one of pointers, and a dtype's name does not tell, because a pickle may
change the dtype afterwards. So nothing of NumPy is built: the pickle's arguments are kept, and
compared with those of the one array that is expected.
"""

from __future__ import annotations

import struct
from typing import Any

NUM_WORDS = 624
"""Words in the state of a Mersenne Twister."""


class _OldDtype:
    def __init__(self, *args: Any) -> None:
        self.facts: tuple[Any, ...] = (args,)

    def __setstate__(self, state: Any) -> None:
        self.facts += (state,)


class OldArray:
    """Arguments of a pickled array of NumPy, which is not built."""

    _FACTS = (("u4", False, True), (3, "<", None, None, None, -1, -1, 0))
    """Of a little-endian `uint32`."""

    def __init__(self, *_args: Any) -> None:
        self._states: list[Any] = []

    def __setstate__(self, state: Any) -> None:
        self._states.append(state)

    def words(self) -> list[int]:
        """Return the words of the state.

        Raises:
            ValueError: it is another array.
        """
        try:
            ((_, shape, dtype, is_fortran, data),) = self._states
            is_state = (
                shape == (NUM_WORDS,)
                and isinstance(dtype, _OldDtype)
                and dtype.facts == self._FACTS
                and is_fortran is False
                and isinstance(data, bytes)
            )
            return list(struct.unpack(f"<{NUM_WORDS}I", data if is_state else b""))
        except (ValueError, TypeError, struct.error) as error:
            message = f"an array of {NUM_WORDS} uint32 is expected"
            raise ValueError(message) from error


class _OldClass:
    """Stands for the class `numpy.ndarray`."""


OLD_NUMPY_NAMES: list[Any] = [
    (OldArray, "numpy._core.multiarray._reconstruct"),
    (OldArray, "numpy.core.multiarray._reconstruct"),
    (_OldClass, "numpy.ndarray"),
    (_OldDtype, "numpy.dtype"),
]
"""Stand-ins for the names in a pickled array, for `torch.serialization.safe_globals`."""
