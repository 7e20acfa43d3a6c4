"""The commands of the terminal, one file each. They load what they need when they run, so that help comes at once."""
