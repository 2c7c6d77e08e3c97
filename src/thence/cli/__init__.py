"""The command line. One file for each group of commands; data goes to standard output, talk to standard error."""
