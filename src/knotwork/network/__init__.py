"""The network: convert → reshape → train, and the ways in for people who bring their own."""
