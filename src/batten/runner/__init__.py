"""A hosted runner: who it is, what it leaves behind when it is drained, and how another goes on."""
