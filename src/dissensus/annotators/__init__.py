"""Annotators: verdicts, pseudonyms, plans for further labels, and sentences about the labels."""
