"""Judgements of `doctor` and `probe` on a site and its nodes."""
