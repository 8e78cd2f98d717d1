"""Ray's authentication tokens in an operator's hands: made, checked, rotated, handed to a shell."""
