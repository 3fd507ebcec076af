"""Pictures within tar and zip archives, reached in place and never extracted.

`tar_members` and `zip_members` list what an archive holds, `member_table` is
that list as numbers which can be mapped into memory, `reading` opens archives and
reads members by name.
"""
