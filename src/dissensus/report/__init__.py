"""A fitted model as one self-contained page: ``dissensus.write_report``, in page.py."""
