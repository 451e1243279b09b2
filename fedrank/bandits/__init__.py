"""Which silos to average with: decision rules, arms, contributions of silos and evidence about them (layer 2)."""
