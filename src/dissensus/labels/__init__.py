"""Labels in memory: who gave which item which label."""
