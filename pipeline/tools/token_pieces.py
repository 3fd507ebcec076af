"""Text of each token, as the tokenizer writes them in sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
_UNFINISHED = "\ufffd"
"""Decoded form of an incomplete character."""
_MOST_BYTES = 4
"""Bytes of a character in UTF-8, so the most tokens that form one together."""


def token_pieces(input_ids: Sequence[int], is_known: Sequence[bool], decode: Decode) -> list[str]:
    """Return the text of each token; joined, they are the text of all.

    Tokenizers that write a blank before words omit it before the first, so a token is decoded
    together with the previous ones (like vLLM's and TGI's incremental detokenisers). If several
    tokens form a character, the last has it, and the others are empty. An unknown id is written
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
