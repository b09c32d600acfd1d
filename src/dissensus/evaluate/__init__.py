"""How good labels and estimates are."""
