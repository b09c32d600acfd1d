"""Who: verdicts, groups, information."""
