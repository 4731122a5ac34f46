"""Tasks that run on other machines: what is sent, what runs there, and who sends it."""
