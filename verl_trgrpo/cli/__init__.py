"""Define the command line. `main` has the table of commands; a command parses its options, calls one sub-package and prints."""
