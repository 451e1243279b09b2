"""Features to the logits of classes (layer 2)."""
