"""Which text each token stands for, as the tokenizer writes them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

_UNFINISHED = "\ufffd"
"""What the bytes of a character become while some are missing."""
_MOST_BYTES = 4
"""Of a character in UTF-8, so tokens that can make one together."""


def token_pieces(input_ids: Sequence[int], is_known: Sequence[bool], decode: Decode) -> list[str]:
    """The text of each token. Joined, they are the text of all.

    Tokenizers that write a blank before words leave it out before the first, so a token is decoded
    with those before it (as vLLM's and TGI's incremental detokenisers do). Of tokens that make a
    character together the last has it, the others are empty. An id that no token has is written
    as such.
    """
    pieces = [""] * len(input_ids)
    first, start = 0, 0
    """Tokens from `first` on are decoded; those from `start` on have no text yet."""
    for place, token_id in enumerate(input_ids):
        if not is_known[place]:
            pieces[place] = f"<no token {token_id}>"
            first = start = place + 1
            continue
        before = decode(input_ids[first:start])
        text = decode(input_ids[first : place + 1])
        more = text[len(before) :]
        is_last = place + 1 == len(input_ids) or not is_known[place + 1]
        if more.endswith(_UNFINISHED) and place + 1 - start < _MOST_BYTES and not is_last:
            continue
        pieces[place] = more
        first, start = start, place + 1
    return pieces
