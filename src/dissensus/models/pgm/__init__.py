"""The graphical model that clusters items and annotators jointly."""
