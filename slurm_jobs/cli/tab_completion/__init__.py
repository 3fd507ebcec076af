"""The verb `completion`, and what a TAB offers."""
