"""Cases that show on a real GPU what tests on a CPU cannot: `make gpu`.

Each case runs in its own process with a time limit and writes what it finds as it goes, so that a
hang or a crash loses only what had not been written yet. `make gpu DEVICE=cpu` runs the same cases
as far as a CPU can.
"""
