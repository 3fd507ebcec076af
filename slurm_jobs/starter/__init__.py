"""What `init` writes: a first spec and a cluster profile, out of what can be seen of both."""
