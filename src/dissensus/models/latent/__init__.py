"""Places of items and annotators instead of clusters: the sampler, and the model with its loop."""
