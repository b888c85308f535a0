"""What people see of a run: facts as lines, and a live display of them on a terminal."""
