"""The normalization layers, their functions, the registry of names and the conversion of models."""
