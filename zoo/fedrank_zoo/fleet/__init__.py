"""Many devices of a hub on one machine, each a process with the SDK and a simulated person."""
