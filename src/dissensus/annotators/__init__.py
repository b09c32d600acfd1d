"""Annotators: verdicts, skill, pseudonyms, plans for further labels, and sentences about the labels."""
