"""What the tests of this folder share."""


# Tests are no package that could be imported from.
