"""LDL-NM: the equations (network.py), training, inference, and the model. PyTorch is imported when used."""
