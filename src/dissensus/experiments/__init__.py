"""What was measured, and how: each module writes one page of results by computation."""
