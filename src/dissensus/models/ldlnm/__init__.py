"""Neural networks in PyTorch: LDL-NM, and the networks of the text learners. Imported only when used."""
