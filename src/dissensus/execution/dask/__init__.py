"""More than one machine: the same steps on the workers of a Dask cluster.

The driver sends parameters and gets sums; labels are read where they are used, from the store's path, and
messages stay in files that all workers can reach. See docs/cluster.md.
"""
