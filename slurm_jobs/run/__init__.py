"""The run folder: where everything of one run lies, and how it is written down."""
