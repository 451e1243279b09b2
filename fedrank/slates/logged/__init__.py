"""What another policy would have earned, from what platforms logged: off-policy evaluation, with intervals."""
