"""Items as texts: embeddings, learners, guided learning and LDL-NM."""
