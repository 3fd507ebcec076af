"""What the verbs do, as functions; one file a verb, for the command line and for notebooks."""
