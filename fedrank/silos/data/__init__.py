"""Tables of silos: reading, generating, splitting."""
