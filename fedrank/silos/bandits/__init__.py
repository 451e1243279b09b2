"""Multi-armed bandits over sets of silos: arms, decision rules, contributions and evidence."""
