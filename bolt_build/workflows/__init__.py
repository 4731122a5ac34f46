"""What one command does out of several rooms: explore variants, compare engines, check models, write recipes."""
