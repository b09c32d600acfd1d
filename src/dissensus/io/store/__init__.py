"""A store on disk: labels larger than memory, packed once, opened at once.

``pack`` reads files in chunks and writes integer columns in the canonical order of
:class:`~dissensus.Annotations`; ``open_annotations`` maps them into memory.

=============  ======================================================================================
packing.py     the story from files to a store
inputs.py      files and partitioned directories as chunks of ids, and where each row stood
budget.py      how much of anything may be in memory at once
raw.py         numbers and ids in plain files
spool.py       chunks coded on their own: rows in order of reading, ids in sorted lists
merging.py     sorted lists merged in pieces that fit memory: ids into vocabularies, runs into rows
alike.py       ids that differ by white space or case only, looked for in little memory
layout.py      the files of a store, cut into shards, with checksums
manifest.py    what is in a store, sealed
workspace.py   a place to work beside the store, and the one step that makes the result visible
opening.py     from a store to ``Annotations``
=============  ======================================================================================

What is written depends on the labels alone: not on the memory, on the order or number of the files, or on
how many packings it took.
"""
