"""A store that a team shares: what is in it, and what of it is believed."""
