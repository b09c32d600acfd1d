"""Hierarchical Bayesian graphical model: annotators vary around their cluster, and items around theirs."""
