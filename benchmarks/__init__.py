"""How fast, how much memory: each file answers one question and prints ratios measured in one run."""
