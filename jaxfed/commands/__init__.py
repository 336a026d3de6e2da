"""The parts of the `jaxfed` command: options, how they become a run, and what is printed, drawn and saved."""
