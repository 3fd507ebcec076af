"""Report in words: the terminal's screen, and the sentences that it shares with the page."""
