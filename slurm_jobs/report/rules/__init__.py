"""Rules that judge a run, each in a file named after it. PURE."""
