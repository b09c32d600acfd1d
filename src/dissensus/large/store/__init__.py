"""A store on disk: labels larger than memory, packed once, opened at once.

``pack`` reads files in chunks and writes integer columns in the canonical order of
:class:`~dissensus.Annotations`; ``open_annotations`` maps them into memory.

=============  ======================================================================================
packing.py     the story from files to a store, and the folder beside it where that happens
inputs.py      files and partitioned directories as chunks that fit memory, and where each row stood
sorting.py     chunks coded on their own, and merged: ids into vocabularies, rows into canonical order
files.py       the files of a store with their checksums, and the manifest, sealed, that names them
opening.py     from a store to ``Annotations``
=============  ======================================================================================

What is written depends on the labels alone: not on the memory, on the order or number of the files, or on
how many packings it took.
"""
