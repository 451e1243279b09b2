"""The protocols over a network: a hub and its devices, Flower for organisations (layer 8)."""
