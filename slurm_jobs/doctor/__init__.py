"""Checks of a site: facts about the login node and the nodes, judged and described."""
