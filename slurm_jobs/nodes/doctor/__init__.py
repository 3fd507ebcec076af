"""Checks of a site by `doctor`: their facts, judgements and texts."""
