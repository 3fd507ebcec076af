"""Run folder: its layout and its records."""
