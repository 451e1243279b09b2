"""A simulated world of users whose satisfaction depends on what they consume."""
