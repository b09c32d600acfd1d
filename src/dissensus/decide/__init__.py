"""A page on this machine, on which a person decides items one at a time.

``session`` holds the labels, the fits and the decisions; ``items`` orders the items and describes each;
``server`` answers the page's requests; ``exports`` writes gold, labels, tasks of other tools, and sentences
for a paper. Decisions are kept by ``tables/decisions``.
"""
