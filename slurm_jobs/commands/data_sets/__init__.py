"""Commands on data sets, and the stage's Python in which they run."""
