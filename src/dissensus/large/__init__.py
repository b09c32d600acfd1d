"""Labels and fits that exceed the memory of one process, or use several machines."""
