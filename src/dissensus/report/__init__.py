"""A fitted model as one self-contained page: ``dissensus.write_report``.

The numbers are gathered first (``content.py`` and the files it calls: plain values, no HTML), put into
sentences (``words.py``), and placed into a template with its style and script (``page.py``, ``assets/``).
"""
