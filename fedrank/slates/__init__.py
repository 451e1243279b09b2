"""Platforms that share users recommend slates together: FedSlate and SlateQ."""
