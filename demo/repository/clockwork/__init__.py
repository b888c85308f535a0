"""Time, said in words."""
