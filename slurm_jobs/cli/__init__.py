"""The command line: argument parsing and printing, grouped by topic."""
