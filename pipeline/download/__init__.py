"""Stage `download`: models and data sets of the Hugging Face hub become folders in its output.

The commit and the files of each repository are looked up once (`repository_plan`). Files that are
complete are kept, however an attempt ends, and a repository appears in the output when all of its
files are there and have the sizes and checksums that the hub gives.
"""
