"""PyYAML's loader, with tabs as blanks where YAML 1.2 allows them.

PyYAML refuses every tab outside of quotes. YAML 1.2 forbids them only in the indentation of
block structure: after a value, before a comment, and anywhere in JSON they are blanks. PURE.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_LINE_BREAKS = "\r\n\x85\u2028\u2029"
_NO_TEXT = f"\0#{_LINE_BREAKS}"
"""Characters before which a line holds no text: its end, that of the file, or a comment."""
_BLOCK_HEAD_WITH_TAB = re.compile(r"[|>][-+0-9]*[ ]*\t[ \t]*")


class SpecLoader(yaml.SafeLoader):
    """SafeLoader that accepts tabs as blanks where YAML does."""

    def scan_to_next_token(self) -> None:
        """Skip blanks, tabs among them, comments and line breaks."""
        super().scan_to_next_token()
        while self.peek() == "\t":
            num_blanks = self._num_blanks()
            is_first_on_line = not self.buffer[self.pointer - self.column : self.pointer].strip()
            has_text = self.peek(num_blanks) not in _NO_TEXT
            if is_first_on_line and has_text and not self.flow_level:
                return  # indentation, which PyYAML refuses
            self.forward(num_blanks)
            if not self.flow_level:
                self.allow_simple_key = False  # no key after a tab: its column would be a guess
            super().scan_to_next_token()

    def scan_plain_spaces(self, indent: int, start_mark: Any) -> Any:
        """Scan blanks in a plain text; tabs between its words belong to it."""
        blanks = self.prefix(self._num_blanks())
        self.forward(len(blanks))
        if self.peek() in _LINE_BREAKS:
            return super().scan_plain_spaces(indent, start_mark)
        return [blanks] if blanks else []

    def scan_block_scalar(self, style: str) -> Any:
        """Scan text below `|` or `>`; a tab after that is a blank."""
        head = _BLOCK_HEAD_WITH_TAB.match(self.buffer, self.pointer)
        if head is not None:
            blanks = head[0].replace("\t", " ")
            self.buffer = self.buffer[: self.pointer] + blanks + self.buffer[head.end() :]
        return super().scan_block_scalar(style)

    def _num_blanks(self) -> int:
        """Count the spaces and tabs from here."""
        number = 0
        while self.peek(number) in " \t":
            number += 1
        return number
