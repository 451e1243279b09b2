"""Runs of any task: the simulator, its rounds, run folders, resuming, sweeps, studies."""
