"""Classifiers fitted to refined label distributions, and ``load``, the reader of every saved estimator."""
