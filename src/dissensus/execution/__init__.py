"""How work runs: blocks, threads, processes, Dask, memory, message storage, checkpoints. Knows no model."""
