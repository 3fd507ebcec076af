"""Images within tar and zip archives, read in place and never extracted.

`tar_members` and `zip_members` list the members of an archive, `member_table` stores that list
as a memory-mapped table of numbers, `reading` opens archives and reads members by name.
"""
