"""Labels and fits that do not fit into memory, or that take more than one machine."""
