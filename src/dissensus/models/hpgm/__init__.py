"""The hierarchical Bayesian graphical model: ways of one's own around those of one's cluster."""
