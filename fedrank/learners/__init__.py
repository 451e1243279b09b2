"""Learning where the data is: rankers from every interaction, networks from a silo's rows (layer 4)."""
