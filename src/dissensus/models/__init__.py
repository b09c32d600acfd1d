"""One file a model, all behind one small interface."""
