"""What Batten costs, measured beside what it could cost at least."""
