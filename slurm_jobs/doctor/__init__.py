"""What would waste an hour on a site: facts of the login node and of nodes, judged, in words."""
