"""What was measured, and the database in which it is kept."""
