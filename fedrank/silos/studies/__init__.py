"""Statistics of a study whose rows stay at silos: a codebook, analyses made of questions, and answers that are sums."""
