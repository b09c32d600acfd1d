"""The paper's evaluation: Tables 1 to 3, its three questions, and further measures.

In the order of the work::

    printed.py    the figures printed in the paper
    datasets.py   finding, reading and splitting the data
    cells.py      one measurement: a file with its settings, seeds and numbers
    annealing.py  simulated annealing as printed
    columns.py    the models that are compared
    plan.py       the cells of an evaluation, and how much is computed
    measures.py   measuring a cell, by its kind
    criteria.py   criteria by which K and L are chosen
    run.py        measuring all cells on several processes
    derived.py    ensembles, intervals and comparisons, computed from the predictions
    results.py    the numbers of all cells, read from cells.jsonl
    tables.py     the tables of the page
    answers.py    the answers of the page
    figures.py    the figures of the page
    page.py       the page

``make reproduce`` runs ``python -m reproduction``. None of it is installed with the library.
"""
