"""Read a shell script without running it: what it starts, and with which words."""
