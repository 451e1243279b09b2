"""Some devices compare the newest model with the best one so far; a hub whose model sinks notices and halts."""
