"""The text of each token."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.tools.token_pieces import token_pieces


def decode_bytes(ids: Sequence[int]) -> str:
    """A token a byte, as byte-level BPE; what is no character becomes U+FFFD."""
    return bytes(ids).decode(errors="replace")


WORDS = {1: "▁Two", 2: "▁red", 3: "▁cups", 4: "."}


def decode_words(ids: Sequence[int]) -> str:
    """As SentencePiece: the blank before the first word is left out."""
    return "".join(WORDS[token_id] for token_id in ids).replace("▁", " ").removeprefix(" ")


def pieces_of(text: bytes) -> list[str]:
    return token_pieces(list(text), [True] * len(text), decode_bytes)


def test_last_token_of_a_character_has_it():
    assert pieces_of("aé🙂b".encode()) == ["a", "", "é", "", "", "", "🙂", "b"]


def test_blanks_before_words_stay():
    assert token_pieces([1, 2, 3, 4], [True] * 4, decode_words) == ["Two", " red", " cups", "."]


def test_bytes_that_are_no_character_are_replaced_and_the_rest_is_right():
    pieces = pieces_of(b"a\xff\xfe\xfd\xfcb")
    assert "".join(pieces) == b"a\xff\xfe\xfd\xfcb".decode(errors="replace")
    assert pieces[0] == "a"
    assert pieces[-1] == "b"


def test_character_that_is_cut_at_the_end_is_not_lost():
    assert pieces_of("a🙂".encode()[:-1])[-1] == "\ufffd"


def test_an_id_without_a_token_is_shown_in_its_place():
    ids, known = [*b"ab", 999, -4, *b"c"], [True, True, False, False, True]
    assert token_pieces(ids, known, decode_bytes) == [
        "a",
        "b",
        "<no token 999>",
        "<no token -4>",
        "c",
    ]
