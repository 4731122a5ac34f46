"""Measuring on several GPUs at once, of this machine or of others: one problem's candidates on one GPU, in one go."""
