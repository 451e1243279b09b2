"""Multi-armed bandits over sets of silos: arms and decision rules."""
