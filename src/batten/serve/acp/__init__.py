"""The Agent Client Protocol on standard input and output: editors use Batten as their agent."""
